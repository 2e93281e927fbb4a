package reconciler

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nvidia/nvsentinel/fault-remediation/decision"
)

// TestARunThatDidNothing: of a run that ended before a step had its object no attempt is
// counted, whatever else a failure means.
func TestARunThatDidNothing(t *testing.T) {
	for _, x := range []struct {
		reason string
		made   bool
		want   decision.Object
	}{
		{reason: "Rejected", want: decision.Object{Unsent: true}},
		{reason: "SessionOver", want: decision.Object{Unsent: true, SessionOver: true}},
		{reason: "NodeExcluded", want: decision.Object{Unsent: true}},
		{reason: "NodeExcluded", made: true},
		{reason: "SessionOver", made: true},
		{reason: "StepFailed"},
		{reason: "Misconfigured", want: decision.Object{Unsent: true, Misconfigured: true}},
		{reason: "Misconfigured", made: true, want: decision.Object{Misconfigured: true}},
		{reason: "OutcomeUnknown", want: decision.Object{Unsent: true, OutcomeUnknown: true}},
		{reason: "OutcomeUnknown", made: true, want: decision.Object{OutcomeUnknown: true}},
		{reason: "NotRepaired", want: decision.Object{Unsent: true}},
		{reason: "NotRepaired", made: true},
		{reason: "NodeNotFound", want: decision.Object{Unsent: true}},
		{reason: "Escalated", made: true, want: decision.Object{Escalated: true}},
	} {
		step := map[string]any{"name": "one", "state": "Waiting"}
		if x.made {
			step["object"] = map[string]any{"kind": "RebootNode", "name": "gpu-1-x", "uid": "1"}
		}
		var got decision.Object
		runFacts(&got, &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{
			"steps":      []any{step},
			"conditions": []any{map[string]any{"type": "Succeeded", "status": "False", "reason": x.reason}},
		}}})
		if len(got.Steps) != 1 || got.Unsent != x.want.Unsent || got.SessionOver != x.want.SessionOver || got.Escalated != x.want.Escalated ||
			got.Misconfigured != x.want.Misconfigured || got.OutcomeUnknown != x.want.OutcomeUnknown {
			t.Errorf("%s, made %v: %+v", x.reason, x.made, got)
		}
	}
}

// TestARunWithStepsOfAnotherShape: whether such steps have made an object is not known, so
// that the run counts as an attempt.
func TestARunWithStepsOfAnotherShape(t *testing.T) {
	for name, steps := range map[string]any{
		"an object by its name": []any{map[string]any{"name": "one", "object": "RebootNode gpu-1-x"}},
		"a number for its uid":  []any{map[string]any{"name": "one", "object": map[string]any{"kind": "RebootNode", "name": "gpu-1-x", "uid": int64(1)}}},
	} {
		var got decision.Object
		runFacts(&got, &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{
			"steps":      steps,
			"conditions": []any{map[string]any{"type": "Succeeded", "status": "False", "reason": "SessionOver"}},
		}}})
		if got.Unsent || got.SessionOver {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
