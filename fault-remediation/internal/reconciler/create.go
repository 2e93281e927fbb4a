package reconciler

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/internal/nodelease"
)

// create creates the reserved object, after the Node was marked by a patch
// that holds only while it shows the session. The answer is a fact like others: the
// step is what is decided of it, or a wait, or the same one if the next look has
// to judge what is there.
func (d *Reconciler) create(ctx context.Context, f *facts, step decision.Step) (decision.Step, error) {
	if wait, on := d.braked(); on {
		return wait, nil
	}
	began, at := d.Clock.Now(), step.Create.Attempt
	repair, _ := d.Repairs.Of(at.Action) // the decision has just chosen it from there
	obj, err := repair.Render(step.Create.Record, at)
	if err != nil {
		return d.refused(f, err), nil
	}
	if err := d.mark(ctx, f, step); err != nil {
		return step, err
	}
	// Nothing may be created once another replica could lead: it may have created
	// the object, and that one may have come to its end since.
	fenced, cancel := lease.Fence(ctx)
	defer cancel()
	instead, err := d.permit(fenced, f, at)
	if err != nil {
		return step, err
	}
	if instead != nil {
		return *instead, nil
	}
	key := writeKey(obj)
	d.objects.Begin(key)
	obj, err = d.Cluster.Dynamic.Resource(repair.GVR()).Namespace(repair.Namespace).Create(fenced, obj, metav1.CreateOptions{})
	if err != nil {
		d.objects.End(key, "")
		return d.notCreated(f, step, err)
	}
	news := d.objects.End(key, obj.GetResourceVersion())
	d.Log.Info("created", "node", f.view.Node.Name, "kind", at.Kind, "name", at.Name, "record", step.Create.Record.ID, "session", at.Session)
	d.Metrics.created(at.Kind, d.Clock.Since(began))
	crashpoint.Here("fault-remediation/created")
	if news {
		return step, nil
	}
	f.view.Object = objectFacts(obj, repair)
	return d.decide(f), nil
}

// permit asks, right before what can not be taken back, whether it may be done: by
// the lead, the brake and the node's lease, which is taken. Else the step is what is decided
// instead.
func (d *Reconciler) permit(fenced context.Context, f *facts, at record.Attempt) (instead *decision.Step, err error) {
	if err := fenced.Err(); err != nil {
		return nil, fmt.Errorf("creating %s %s: %w", at.Kind, at.Name, err)
	}
	if wait, on := d.braked(); on {
		return &wait, nil
	}
	err = d.claim(fenced, f.node, at.Action)
	if taken, is := nodelease.Taken(err); is {
		return new(d.hindered(f, decision.WaitLease, taken)), nil
	}
	return nil, err
}

// hindered is the step for an object that may not be created now.
func (d *Reconciler) hindered(f *facts, why decision.Reason, err error) decision.Step {
	f.view.Object = unread(why, err)
	return d.decide(f)
}

// braked is the wait for the emergency brake, while that is on.
func (d *Reconciler) braked() (wait decision.Step, on bool) {
	why, on := d.Brake.On()
	return decision.Step{Reason: decision.WaitBrake, After: d.Brake.Wait(), Message: why}, on
}

func writeKey(obj *unstructured.Unstructured) string {
	return obj.GetKind() + "/" + obj.GetNamespace() + "/" + obj.GetName()
}

// Own says whether news of an object is only that this reconciler created it.
func (d *Reconciler) Own(obj *unstructured.Unstructured) bool {
	return d.objects.Ignores(writeKey(obj), obj.GetResourceVersion())
}

// notCreated judges the API server's error. That the object exists already is for
// the next look to judge.
func (d *Reconciler) notCreated(f *facts, step decision.Step, err error) (decision.Step, error) {
	at := step.Create.Attempt
	switch {
	case apierrors.IsAlreadyExists(err):
		return step, nil
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		return d.refused(f, err), nil
	}
	d.Metrics.failed("create")
	err = fmt.Errorf("creating %s %s: %w", at.Kind, at.Name, err)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		d.Log.Warn("the API server does not take the repair object", "node", f.view.Node.Name, "kind", at.Kind, "name", at.Name, "error", err)
		why := decision.KindMissing
		if apierrors.IsForbidden(err) {
			why = decision.CreateForbidden
		}
		return d.hindered(f, why, err), nil
	}
	return step, err
}

// refused is the step for an object that can never be created.
func (d *Reconciler) refused(f *facts, why error) decision.Step {
	f.view.Object = decision.Object{Presence: decision.Absent, Refused: why.Error()}
	return d.decide(f)
}
