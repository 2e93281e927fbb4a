package repair

import (
	"context"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/action"
	"github.com/nvidia/nvsentinel/fault-remediation/plan"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/healthrule"
)

// object reads the object of an attempt. Only a true NotFound is absence; what
// can not be read is Unread, with the reason.
func (d *Desk) object(ctx context.Context, a record.Attempt) plan.Object {
	repair, ok := d.Repairs.Of(a.Action)
	if !ok || repair.GVK.Kind != a.Kind || repair.Namespace != a.Namespace {
		return unread(plan.Unconfigured, fmt.Errorf("%s is not configured as %s any more", a.Action, a.Kind))
	}
	obj, err := d.Cluster.Dynamic.Resource(repair.GVR()).Namespace(repair.Namespace).Get(ctx, a.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		return objectFacts(obj, repair)
	case absent(err):
		return plan.Object{Presence: plan.Absent}
	case kindMissing(err):
		return unread(plan.KindMissing, fmt.Errorf("the API server does not serve %s", repair.GVR()))
	}
	d.Metrics.failed("read")
	return unread(plan.ReadError, err)
}

func unread(why plan.Reason, err error) plan.Object {
	return plan.Object{Presence: plan.Unread, Unread: why, Health: healthrule.Evaluate(nil, nil, err)}
}

// objectFacts reads what the plan needs from an object. Conditions and status
// fields are those of the janitor's kinds; other kinds lack them.
func objectFacts(obj *unstructured.Unstructured, repair action.Action) plan.Object {
	marks := obj.GetAnnotations()
	ordinal, _ := strconv.Atoi(marks[action.OrdinalAnnotation])
	signal, ok := healthrule.ConditionOf(obj, "SignalSent")
	refused := ok && signal.Status == "False"
	notNeeded := ok && signal.Reason == "NotNeeded"
	prior, _, _ := unstructured.NestedString(obj.Object, "status", "preRebootBootID")
	observed, _, _ := unstructured.NestedString(obj.Object, "status", "observedBootID")
	o := plan.Object{
		Presence: plan.Present, UID: string(obj.GetUID()), CreatedAt: obj.GetCreationTimestamp().Time,
		Session: marks[action.SessionAnnotation], Group: marks[action.GroupAnnotation], Ordinal: ordinal,
		Health: healthrule.Evaluate(obj, &repair.Rule, nil),
		Unsent: refused || notNeeded, SessionOver: refused && signal.Reason == "SessionOver",
		PriorBoot: prior, ObservedBoot: observed,
	}
	if repair.Chain != "" {
		runFacts(&o, obj)
	}
	return o
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
