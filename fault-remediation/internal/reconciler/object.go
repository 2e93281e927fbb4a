package reconciler

import (
	"context"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/action"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/healthrule"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/remediation"
)

// object reads the object of an attempt. Only a true NotFound is absence; what
// can not be read is Unread, with the reason.
func (r *Reconciler) object(ctx context.Context, a record.Attempt) decision.Object {
	repair, ok := r.Repairs.Of(a.Action)
	if !ok || repair.GVK.Kind != a.Kind || repair.Namespace != a.Namespace {
		return unread(decision.Unconfigured, fmt.Errorf("%s is no longer configured as %s", a.Action, a.Kind))
	}
	obj, err := r.Cluster.Dynamic.Resource(repair.GVR()).Namespace(repair.Namespace).Get(ctx, a.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		return objectFacts(obj, repair)
	case kindMissing(err):
		return unread(decision.KindMissing, fmt.Errorf("the API server does not serve %s", repair.GVR()))
	case apierrors.IsNotFound(err):
		return decision.Object{Presence: decision.Absent}
	}
	r.Metrics.failed("read")
	r.Log.Warn("maintenance object not read, retrying", "kind", a.Kind, "name", a.Name, "error", err)
	return unread(decision.ReadError, err)
}

func unread(why decision.Reason, err error) decision.Object {
	return decision.Object{Presence: decision.Unread, Unread: why, Health: healthrule.Evaluate(nil, nil, err)}
}

// objectFacts reads what the decision needs from an object. Conditions and status
// fields are those of the janitor's kinds; other kinds lack them.
func objectFacts(obj *unstructured.Unstructured, repair action.Action) decision.Object {
	marks := obj.GetAnnotations()
	ordinal, _ := strconv.Atoi(marks[remediation.OrdinalAnnotation])
	signal, ok := healthrule.ConditionOf(obj, "SignalSent")
	refused := ok && signal.Status == "False"
	notNeeded := ok && signal.Reason == "NotNeeded"
	prior, _, _ := unstructured.NestedString(obj.Object, "status", "preRebootBootID")
	observed, _, _ := unstructured.NestedString(obj.Object, "status", "observedBootID")
	o := decision.Object{
		Presence: decision.Present, UID: string(obj.GetUID()), CreatedAt: obj.GetCreationTimestamp().Time,
		Session: marks[nodemark.SessionAnnotation], Group: marks[remediation.GroupAnnotation], Ordinal: ordinal,
		Deleting: obj.GetDeletionTimestamp() != nil, Health: healthrule.Evaluate(obj, &repair.Rule, nil),
		Unsent: refused || notNeeded, SessionOver: refused && signal.Reason == "SessionOver",
		PriorBoot: prior, ObservedBoot: observed,
	}
	if repair.Chain != "" {
		runFacts(&o, obj)
	}
	return o
}

// kindMissing reports whether a 404 is that of a path that nobody serves, and not of an object.
func kindMissing(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// create creates the reserved object, after the Node was marked by a patch that holds only
// while it shows the session. The answer is a fact like others: the step is what is decided
// from it, or a wait, or the same one if the next pass has to read what is there.
func (r *Reconciler) create(ctx context.Context, f *facts, step decision.Step) (decision.Step, error) {
	if wait, on := r.paused(); on {
		return wait, nil
	}
	began, at := r.Clock.Now(), step.Create.Attempt
	repair, _ := r.Repairs.Of(at.Action) // the decision has just chosen it from there
	obj, err := repair.Render(step.Create.Record, at)
	if err != nil {
		return r.refused(f, err), nil
	}
	if err := r.mark(ctx, f, step); err != nil {
		return step, err
	}
	// Nothing may be created once another replica could lead: it may have created
	// the object, and that one may have come to its end since.
	fenced, cancel := lease.Fence(ctx)
	defer cancel()
	instead, err := r.permit(fenced, f, at)
	if err != nil {
		return step, err
	}
	if instead != nil {
		return *instead, nil
	}
	key := writeKey(obj)
	r.objects.Begin(key)
	obj, err = r.Cluster.Dynamic.Resource(repair.GVR()).Namespace(repair.Namespace).Create(fenced, obj, metav1.CreateOptions{})
	if err != nil {
		r.objects.End(key, "")
		return r.notCreated(f, step, err)
	}
	news := r.objects.End(key, obj.GetResourceVersion())
	r.Log.Info("maintenance object created", "node", f.view.Node.Name, "kind", at.Kind, "name", at.Name, "record", step.Create.Record.ID, "session", at.Session)
	r.Metrics.created(at.Kind, r.Clock.Since(began))
	crashpoint.Here("fault-remediation/created")
	if news {
		return step, nil
	}
	f.view.Object = objectFacts(obj, repair)
	return r.decide(f), nil
}

// permit asks, right before what cannot be undone, whether it may be done: by the lead, the
// emergency stop and the node's lease, which it takes. If not, instead is the step that is decided.
func (r *Reconciler) permit(fenced context.Context, f *facts, at record.Attempt) (instead *decision.Step, err error) {
	if err := fenced.Err(); err != nil {
		return nil, fmt.Errorf("creating %s %s: %w", at.Kind, at.Name, err)
	}
	if wait, on := r.paused(); on {
		return &wait, nil
	}
	err = r.claim(fenced, f.node, at.Action)
	if taken, is := nodelease.Taken(err); is {
		return new(r.hindered(f, decision.WaitLease, taken)), nil
	}
	return nil, err
}

// hindered is the step for an object that may not be created now.
func (r *Reconciler) hindered(f *facts, why decision.Reason, err error) decision.Step {
	f.view.Object = unread(why, err)
	return r.decide(f)
}

// paused returns the wait for the end of the emergency stop, while that is on.
func (r *Reconciler) paused() (wait decision.Step, on bool) {
	why, on := r.Pause.On()
	return decision.Step{Reason: decision.WaitPaused, After: r.Pause.Wait(), Message: why}, on
}

func writeKey(obj *unstructured.Unstructured) string {
	return obj.GetKind() + "/" + obj.GetNamespace() + "/" + obj.GetName()
}

// Own reports whether news of an object is only that this reconciler created it.
func (r *Reconciler) Own(obj *unstructured.Unstructured) bool {
	return r.objects.Ignores(writeKey(obj), obj.GetResourceVersion())
}

// notCreated decides what follows from the API server's error. An object that exists
// already is left to the next pass.
func (r *Reconciler) notCreated(f *facts, step decision.Step, err error) (decision.Step, error) {
	at := step.Create.Attempt
	switch {
	case apierrors.IsAlreadyExists(err):
		return step, nil
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		return r.refused(f, err), nil
	}
	r.Metrics.failed("create")
	err = fmt.Errorf("creating %s %s: %w", at.Kind, at.Name, err)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		r.Log.Warn("maintenance object rejected by the API server", "node", f.view.Node.Name, "kind", at.Kind, "name", at.Name, "error", err)
		why := decision.KindMissing
		if apierrors.IsForbidden(err) {
			why = decision.CreateForbidden
		}
		return r.hindered(f, why, err), nil
	}
	return step, err
}

// refused is the step for an object that can never be created.
func (r *Reconciler) refused(f *facts, why error) decision.Step {
	f.view.Object = decision.Object{Presence: decision.Absent, Refused: why.Error()}
	return r.decide(f)
}
