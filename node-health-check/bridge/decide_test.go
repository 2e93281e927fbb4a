package bridge

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	check "github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/internal/nodemark"

	"github.com/nvidia/nvsentinel/api/healthevent/v1alpha1"
)

var noon = metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))

// object is a guarded and reported remediation of node gpu-1, with PROCESS.
func object(change ...func(*v1alpha1.HealthEventRemediation)) *v1alpha1.HealthEventRemediation {
	o := &v1alpha1.HealthEventRemediation{
		ObjectMeta: metav1.ObjectMeta{
			Name: "gpu-1", UID: "4d7d4e5c-0000-4000-8000-000000000001", CreationTimestamp: noon, Finalizers: []string{v1alpha1.Finalizer},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: check.GroupVersion.String(), Kind: check.Kind, Name: "workers"}},
		},
		Spec:   v1alpha1.HealthEventRemediationSpec{ProcessingStrategy: "PROCESS", RecommendedAction: "RESTART_BM"},
		Status: v1alpha1.HealthEventRemediationStatus{EventID: "x"},
	}
	for _, c := range change {
		c(o)
	}
	return o
}

func fresh(o *v1alpha1.HealthEventRemediation) { o.Finalizers, o.Status.EventID = nil, "" }

func guarded(o *v1alpha1.HealthEventRemediation) { o.Status.EventID = "" }

func observed(o *v1alpha1.HealthEventRemediation) { o.Spec.ProcessingStrategy = "PERSIST_ONLY" }

func replacing(o *v1alpha1.HealthEventRemediation) { o.Spec.RecommendedAction = "REPLACE_VM" }

func orphan(o *v1alpha1.HealthEventRemediation) { o.OwnerReferences = nil }

// owned is an object with another owner.
func owned(apiVersion, kind string) func(*v1alpha1.HealthEventRemediation) {
	return func(o *v1alpha1.HealthEventRemediation) {
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "workers"}}
	}
}

func deleted(o *v1alpha1.HealthEventRemediation) { o.DeletionTimestamp = &noon }

func timedOut(o *v1alpha1.HealthEventRemediation) {
	o.Annotations = map[string]string{check.TimedOutAnnotation: "2026-03-01T12:30:00Z"}
}

func condition(reason Reason, status metav1.ConditionStatus) func(*v1alpha1.HealthEventRemediation) {
	return func(o *v1alpha1.HealthEventRemediation) {
		meta.SetStatusCondition(&o.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionSucceeded, Status: status, Reason: string(reason)})
	}
}

func in(state nodemark.State) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-1"}}
	if state != "" {
		n.Labels = map[string]string{nodemark.StateLabel: string(state)}
	}
	return n
}

func TestDecide(t *testing.T) {
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	tests := map[string]struct {
		o                     *v1alpha1.HealthEventRemediation
		node                  *corev1.Node
		do                    Step
		reason                Reason
		processing, succeeded metav1.ConditionStatus
	}{
		"new":                                 {object(fresh), in(""), Guard, Reporting, yes, unknown},
		"new, the node no longer exists":      {object(fresh), nil, WriteConditions, NoNode, no, no},
		"new, the repair has failed before":   {object(fresh), in(nodemark.RemediationFailed), WriteConditions, QuarantineFailed, no, no},
		"new, in quarantine for other faults": {object(fresh), in(nodemark.Draining), Guard, Reporting, yes, unknown},
		"new, of nobody":                      {object(fresh, orphan), in(""), WriteConditions, NotOfACheck, no, no},
		"new, of another kind of the group":   {object(fresh, owned(check.GroupVersion.String(), "Other")), in(""), WriteConditions, NotOfACheck, no, no},
		"new, of the kind of another group":   {object(fresh, owned("example.com/v1", check.Kind)), in(""), WriteConditions, NotOfACheck, no, no},
		"new, given up already":               {object(fresh, timedOut), in(""), WriteConditions, TimedOut, no, no},
		"guarded":                             {object(guarded), in(""), Report, Reporting, yes, unknown},
		"guarded, perhaps reported: failed":   {object(guarded), in(nodemark.RemediationFailed), Report, Reporting, yes, unknown},
		"guarded, the node no longer exists":  {object(guarded), nil, Report, Reporting, yes, unknown},
		"guarded, given up":                   {object(guarded, timedOut), in(""), WriteConditions, TimedOut, no, no},
		"guarded, goes":                       {object(guarded, deleted), in(""), Recover, "", "", ""},
		"new, goes":                           {object(fresh, deleted), in(""), WriteConditions, "", "", ""},
		"reported":                            {object(), in(""), WriteConditions, Reported, yes, unknown},
		"reported, observed only":             {object(observed), in(nodemark.Draining), WriteConditions, ObservedOnly, no, unknown},
		"quarantined":                         {object(), in(nodemark.Quarantined), WriteConditions, "Quarantined", yes, unknown},
		"draining":                            {object(), in(nodemark.Draining), WriteConditions, "Draining", yes, unknown},
		"drained":                             {object(), in(nodemark.DrainSucceeded), WriteConditions, "Drained", yes, unknown},
		"a state of the earlier NVSentinel":   {object(), in("drain-failed"), WriteConditions, "Quarantined", yes, unknown},
		"remediating":                         {object(), in(nodemark.Remediating), WriteConditions, "Remediating", yes, unknown},
		"repaired":                            {object(), in(nodemark.RemediationSucceeded), WriteConditions, "RemediationSucceeded", no, yes},
		"the maintenance failed":              {object(), in(nodemark.RemediationFailed), WriteConditions, "RemediationFailed", no, no},
		"a state of a later version":          {object(), in("resting"), WriteConditions, "Quarantined", yes, unknown},
		"released":                            {object(condition("Draining", unknown)), in(""), WriteConditions, Released, no, unknown},
		"still released":                      {object(condition(Released, unknown)), in(""), WriteConditions, Released, no, unknown},
		"given up":                            {object(timedOut), in(nodemark.Draining), WriteConditions, TimedOut, no, no},
		"an outcome stays: failed":            {object(condition("RemediationFailed", no)), in(""), WriteConditions, "", "", ""},
		"an outcome stays: succeeded":         {object(condition("RemediationSucceeded", yes), timedOut), in(nodemark.RemediationFailed), WriteConditions, "", "", ""},
		"an outcome, and it goes":             {object(condition("RemediationFailed", no), deleted), in(""), Recover, "", "", ""},
		"replaced":                            {object(replacing), nil, WriteConditions, Replaced, no, yes},
		"gone, and not by us":                 {object(), nil, WriteConditions, Reported, yes, unknown},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := Decide(tt.o, tt.node)
			if d.Do != tt.do || d.Reason != tt.reason || d.Processing != tt.processing || d.Succeeded != tt.succeeded {
				t.Errorf("got %+v", d)
			}
			if d.NodeDeleted != (tt.o.Spec.RecommendedAction == "REPLACE_VM" && d.Reason != "") {
				t.Errorf("node goes: %t", d.NodeDeleted)
			}
			changed := d.Write(tt.o, noon)
			if again := Decide(tt.o, tt.node).Write(tt.o, noon); again || changed != (d.Reason != "") {
				t.Errorf("written %t, and again %t", changed, again)
			}
		})
	}
}

// TestWriteReportsConditionChange: a write reports a change of any of the three conditions.
func TestWriteReportsConditionChange(t *testing.T) {
	reported := Decision{Reason: Reported, Message: "m", Processing: metav1.ConditionTrue, Succeeded: metav1.ConditionUnknown, NodeDeleted: true}
	for name, tc := range map[string]struct {
		other func(*Decision)
		want  bool
	}{
		"none":                  {func(*Decision) {}, false},
		"Processing":            {func(d *Decision) { d.Processing = metav1.ConditionFalse }, true},
		"Succeeded":             {func(d *Decision) { d.Succeeded = metav1.ConditionFalse }, true},
		"the reason":            {func(d *Decision) { d.Reason = Released }, true},
		"the message":           {func(d *Decision) { d.Message = "n" }, true},
		"nothing is to be told": {func(d *Decision) { d.Reason, d.Processing = "", metav1.ConditionFalse }, false},
	} {
		o, d := object(), reported
		reported.Write(o, noon)
		if tc.other(&d); d.Write(o, noon) != tc.want {
			t.Errorf("%s is another: %t, want %t", name, !tc.want, tc.want)
		}
	}
	o, stays := object(), reported
	stays.NodeDeleted = false
	stays.Write(o, noon)
	if goes := meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionDeletionExpected); goes {
		t.Error("the node of an object that says nothing of it is expected to go")
	}
	changed := reported.Write(o, noon)
	if goes := meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionDeletionExpected); !changed || !goes {
		t.Errorf("that the node goes is another: %t, and told %t", changed, goes)
	}
}

// TestEvents: both events of an object are the same whenever they are made, of one
// identity, and in order.
func TestEvents(t *testing.T) {
	o := object(deleted)
	o.Annotations = map[string]string{check.NodeNameAnnotation: "gpu-7"}
	fault, recovery := Fault(o), Recovery(o)
	if again := Fault(o.DeepCopy()); again.GetId() != fault.GetId() || again.String() != fault.String() {
		t.Errorf("another fault: %v", again)
	}
	later := object(func(o *v1alpha1.HealthEventRemediation) { o.UID = "4d7d4e5c-0000-4000-8000-000000000002" })
	ids := map[string]bool{fault.GetId(): true, recovery.GetId(): true, Fault(later).GetId(): true, Recovery(later).GetId(): true}
	if len(ids) != 4 {
		t.Errorf("ids %v", ids)
	}
	if fault.GetNodeName() != "gpu-7" || !fault.GetIsFatal() || fault.GetRecommendedAction() != protos.RecommendedAction_RESTART_BM ||
		fault.GetProcessingStrategy() != protos.ProcessingStrategy_PROCESS || fault.GetMetadata()["seq"] != "1" || recovery.GetMetadata()["seq"] != "2" {
		t.Errorf("fault %v", fault)
	}
	if !recovery.GetIsHealthy() || recovery.GetIsFatal() || recovery.GetRecommendedAction() != protos.RecommendedAction_NONE ||
		recovery.GetEntitiesImpacted()[0].String() != fault.GetEntitiesImpacted()[0].String() || recovery.GetErrorCode()[0] != fault.GetErrorCode()[0] {
		t.Errorf("recovery %v", recovery)
	}
	for _, strategy := range []string{"", "PERSIST_ONLY", "process", "x"} {
		o.Spec = v1alpha1.HealthEventRemediationSpec{ProcessingStrategy: strategy}
		if f := Fault(o); f.GetProcessingStrategy() != protos.ProcessingStrategy_PERSIST_ONLY || f.GetRecommendedAction() != protos.RecommendedAction_RESTART_VM {
			t.Errorf("strategy %q: %v", strategy, f)
		}
	}
	o.Spec = v1alpha1.HealthEventRemediationSpec{RecommendedAction: "NEWER_ACTION"}
	if f := Fault(o); f.GetRecommendedAction() != protos.RecommendedAction_UNKNOWN || f.GetMetadata()["unknownRecommendedAction"] != "NEWER_ACTION" || f.GetMetadata()["seq"] != "1" {
		t.Errorf("an action of a newer version: %v", f)
	}
}
