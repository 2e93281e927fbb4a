package watch

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/policy"
)

// TestAnEvaluationIsInterrupted: a loop ends with its time, and that is an error
// of the evaluation and no answer.
func TestAnEvaluationIsInterrupted(t *testing.T) {
	synctest.Test(t, interrupted) // no time passes while an evaluation is at work
}

func interrupted(t *testing.T) {
	set, err := policy.Parse("f", `[[policies]]
name = "Loop"
enabled = true
[policies.resource]
group = ""
version = "v1"
kind = "Node"
[policies.predicate]
expression = "lists.range(1000).all(a, a >= 0)"
[policies.healthEvent]
componentClass = "Node"
message = "m"
recommendedAction = "NONE"
`, nil)
	if err != nil {
		t.Fatal(err)
	}
	object := map[string]any{"metadata": map[string]any{"name": "n"}}
	if match, err := set.Policies[0].Match(object, time.Unix(1, 0), bounded(t.Context())); err != nil || !match.Matched {
		t.Fatalf("in time it is %v, %v", match, err)
	}
	late, cancel := context.WithCancel(t.Context())
	cancel()
	match, err := set.Policies[0].Match(object, time.Unix(1, 0), bounded(late))
	failed, ok := errors.AsType[*policy.Error](err)
	if !ok || failed.Failure != policy.CELError || match.Matched || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("too late it is %v, %v", match, err)
	}
}
