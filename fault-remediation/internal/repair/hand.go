package repair

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/action"
	"github.com/nvidia/nvsentinel/fault-remediation/plan"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/internal/outcome"
)

// refusedWait is the pause after the API server forbade a creation.
const refusedWait = 30 * time.Second

func (d *Desk) read(ctx context.Context, repair action.Action, name string) (*unstructured.Unstructured, error) {
	return d.Cluster.Dynamic.Resource(repair.GVR()).Namespace(repair.Namespace).Get(ctx, name, metav1.GetOptions{})
}

// absent says whether an error of a read proves that the object does not exist.
func absent(err error) bool {
	if crashpoint.Sabotaged("fault-remediation/notfound-on-error") {
		return true
	}
	return apierrors.IsNotFound(err) && !kindMissing(err)
}

// kindMissing tells the 404 of a path nobody serves from that of an object.
func kindMissing(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// create creates the reserved object, after the Node was marked under the
// resourceVersion that showed the session. That the object exists already is
// for the next look to judge.
func (d *Desk) create(ctx context.Context, f *facts, step plan.Step) (done bool, err error) {
	at := step.Create.Attempt
	repair, ok := d.Repairs.Of(at.Action)
	if !ok {
		return true, outcome.Park(refusedWait, fmt.Sprintf("%s is not configured any more", at.Action))
	}
	if why, on := d.Brake.On(); on {
		return true, outcome.Park(d.Brake.Wait(), why)
	}
	began := d.Clock.Now()
	obj, err := repair.Render(step.Create.Record, at)
	if err != nil {
		return false, d.refuse(ctx, f, err.Error())
	}
	if err := d.mark(ctx, f, step); err != nil {
		return false, err
	}
	// Nothing may be created once another replica could lead: it may have created
	// the object, and that one may have come to its end since.
	fenced, cancel := lease.Fence(ctx)
	defer cancel()
	if err := fenced.Err(); err != nil {
		return false, fmt.Errorf("creating %s %s: %w", at.Kind, at.Name, err)
	}
	if why, on := d.Brake.On(); on {
		return true, outcome.Park(d.Brake.Wait(), why)
	}
	if waits, err := d.claim(fenced, f.view.Node.Name, repair); err != nil {
		return false, err
	} else if waits != nil {
		return true, waits
	}
	key := echoKey(obj)
	d.objects.Begin(key)
	obj, err = d.Cluster.Dynamic.Resource(repair.GVR()).Namespace(repair.Namespace).Create(fenced, obj, metav1.CreateOptions{})
	if err != nil {
		d.objects.End(key, "")
	} else {
		f.created = new(objectFacts(obj, repair))
		f.news = d.objects.End(key, obj.GetResourceVersion())
	}
	return d.created(ctx, f, step, err, d.Clock.Since(began))
}

func echoKey(obj *unstructured.Unstructured) string {
	return obj.GetKind() + "/" + obj.GetNamespace() + "/" + obj.GetName()
}

// Own says whether news of an object is only that this desk created it.
func (d *Desk) Own(obj *unstructured.Unstructured) bool {
	return d.objects.Heard(echoKey(obj), obj.GetResourceVersion())
}

// created judges the answer to a creation that took that long.
func (d *Desk) created(ctx context.Context, f *facts, step plan.Step, err error, took time.Duration) (done bool, _ error) {
	at := step.Create.Attempt
	switch {
	case err == nil:
		d.Log.Info("created", "node", f.view.Node.Name, "kind", at.Kind, "name", at.Name, "record", step.Create.Record.ID, "session", at.Session)
		d.Metrics.created(at.Kind, took)
		crashpoint.Here("fault-remediation/created")
		return false, nil
	case apierrors.IsAlreadyExists(err):
		return false, nil
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		return false, d.refuse(ctx, f, err.Error())
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
		d.Metrics.failed("create")
		d.Log.Warn("the API server does not take the repair object", "node", f.view.Node.Name, "kind", at.Kind, "name", at.Name, "error", err)
		return true, outcome.Park(refusedWait, fmt.Sprintf("%s: creating %s %s: %v", plan.KindMissing, at.Kind, at.Name, err))
	}
	d.Metrics.failed("create")
	return false, fmt.Errorf("creating %s %s: %w", at.Kind, at.Name, err)
}

// refuse leaves an object that can never be created to a person.
func (d *Desk) refuse(ctx context.Context, f *facts, why string) error {
	step, ok := plan.Refuse(f.view, why, d.Clock.Now())
	if !ok {
		return nil
	}
	return d.stamp(ctx, f, step)
}

// createUnstamped is a fault that crash tests ask for: an object whose name is
// nowhere written down.
func (d *Desk) createUnstamped(ctx context.Context, f *facts, step plan.Step) error {
	for _, w := range step.Writes {
		at := w.Status.Remediation.Attempts[len(w.Status.Remediation.Attempts)-1]
		repair, _ := d.Repairs.Of(at.Action)
		random := make([]byte, 4)
		if _, err := rand.Read(random); err != nil {
			return err
		}
		at.Name = f.view.Node.Name + "-" + hex.EncodeToString(random)
		obj, err := repair.Render(record.Record{ID: w.ID, Event: record.Event{NodeName: f.view.Node.Name}}, at)
		if err != nil {
			return err
		}
		if _, err := d.Cluster.Dynamic.Resource(repair.GVR()).Namespace(repair.Namespace).Create(ctx, obj, metav1.CreateOptions{}); err != nil {
			return err
		}
		crashpoint.Here("fault-remediation/created")
	}
	return outcome.Park(refusedWait, "sabotaged")
}
