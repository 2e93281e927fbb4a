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
	"github.com/nvidia/nvsentinel/internal/healthrule"
)

// object reads the object of an attempt. Only a true NotFound is absence; what
// can not be read is Unread, with the reason.
func (d *Reconciler) object(ctx context.Context, a record.Attempt) decision.Object {
	repair, ok := d.Repairs.Of(a.Action)
	if !ok || repair.GVK.Kind != a.Kind || repair.Namespace != a.Namespace {
		return unread(decision.Unconfigured, fmt.Errorf("%s is not configured as %s any more", a.Action, a.Kind))
	}
	obj, err := d.Cluster.Dynamic.Resource(repair.GVR()).Namespace(repair.Namespace).Get(ctx, a.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		return objectFacts(obj, repair)
	case kindMissing(err):
		return unread(decision.KindMissing, fmt.Errorf("the API server does not serve %s", repair.GVR()))
	case apierrors.IsNotFound(err):
		return decision.Object{Presence: decision.Absent}
	}
	d.Metrics.failed("read")
	d.Log.Warn("the repair object cannot be read, trying again", "kind", a.Kind, "name", a.Name, "error", err)
	return unread(decision.ReadError, err)
}

func unread(why decision.Reason, err error) decision.Object {
	return decision.Object{Presence: decision.Unread, Unread: why, Health: healthrule.Evaluate(nil, nil, err)}
}

// objectFacts reads what the decision needs from an object. Conditions and status
// fields are those of the janitor's kinds; other kinds lack them.
func objectFacts(obj *unstructured.Unstructured, repair action.Action) decision.Object {
	marks := obj.GetAnnotations()
	ordinal, _ := strconv.Atoi(marks[action.OrdinalAnnotation])
	signal, ok := healthrule.ConditionOf(obj, "SignalSent")
	refused := ok && signal.Status == "False"
	notNeeded := ok && signal.Reason == "NotNeeded"
	prior, _, _ := unstructured.NestedString(obj.Object, "status", "preRebootBootID")
	observed, _, _ := unstructured.NestedString(obj.Object, "status", "observedBootID")
	o := decision.Object{
		Presence: decision.Present, UID: string(obj.GetUID()), CreatedAt: obj.GetCreationTimestamp().Time,
		Session: marks[action.SessionAnnotation], Group: marks[action.GroupAnnotation], Ordinal: ordinal,
		Deleting: obj.GetDeletionTimestamp() != nil, Health: healthrule.Evaluate(obj, &repair.Rule, nil),
		Unsent: refused || notNeeded, SessionOver: refused && signal.Reason == "SessionOver",
		PriorBoot: prior, ObservedBoot: observed,
	}
	if repair.Chain != "" {
		runFacts(&o, obj)
	}
	return o
}

// kindMissing tells the 404 of a path nobody serves from that of an object.
func kindMissing(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
