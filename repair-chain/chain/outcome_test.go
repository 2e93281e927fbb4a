package chain

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/artifact"
)

// TestOutcome: what the ends of its steps make of a run. D, F and S are Done, Failed and
// Skipped; L, T and C are Failed because the object was lost, its name taken, or its
// definition changed by others.
func TestOutcome(t *testing.T) {
	next := v1alpha1.Continue
	collect := v1alpha1.Step{Name: "collect", OnFailure: next}
	reset := v1alpha1.Step{Name: "reset", OnFailure: next}
	reboot := v1alpha1.Step{Name: "reboot", When: "steps.reset == 'Failed'", OnFailure: next}
	replace := v1alpha1.Step{Name: "replace", When: "steps['reboot'] != 'Done'", OnFailure: next}
	ticket := v1alpha1.Step{Name: "ticket", When: "steps.reset == 'Failed'", Always: true, OnFailure: next}
	any := v1alpha1.Step{Name: "any", When: "steps.exists(name, steps[name] == 'Failed')", OnFailure: next}
	named := v1alpha1.Step{Name: "named", When: "node == 'gpu-1' && action == 'RESTART_BM'", OnFailure: next}
	heard := v1alpha1.Step{Name: "heard", When: "messages.collect == ''", OnFailure: next}
	for _, tc := range []struct {
		name       string
		steps      []v1alpha1.Step
		ends       string
		succeedsIf string
		reason     string
		message    string
	}{
		{"every step is done", []v1alpha1.Step{reset, reboot}, "DS", "", v1alpha1.ReasonDone, ""},
		{"a step failed that none asks about", []v1alpha1.Step{collect, reset}, "FD", "", v1alpha1.ReasonDone, ""},
		{"it failed as the last", []v1alpha1.Step{reset, collect}, "DF", "", v1alpha1.ReasonDone, ""},
		{"it failed alone", []v1alpha1.Step{collect}, "F", "", v1alpha1.ReasonNotRepaired, "no step is done, step collect failed: Verdict"},
		{"all failed", []v1alpha1.Step{collect, reset}, "FF", "", v1alpha1.ReasonNotRepaired, "step reset failed"},
		{"all are skipped", []v1alpha1.Step{collect, reset}, "SS", "", v1alpha1.ReasonNotRepaired, "no step is done"},
		{"the alternative is done", []v1alpha1.Step{reset, reboot}, "FD", "", v1alpha1.ReasonDone, ""},
		{"the alternative is skipped", []v1alpha1.Step{reset, reboot}, "FS", "", v1alpha1.ReasonNotRepaired, "step reset: Verdict, no alternative"},
		{"another step is done", []v1alpha1.Step{collect, reset, reboot}, "DFS", "", v1alpha1.ReasonNotRepaired, "step reset: Verdict, no alternative"},
		{"the alternative failed", []v1alpha1.Step{collect, reset, reboot}, "DFF", "", v1alpha1.ReasonNotRepaired, "step reset: Verdict, no alternative"},
		{"the alternative's alternative is done", []v1alpha1.Step{reset, reboot, replace}, "FFD", "", v1alpha1.ReasonDone, ""},
		{"both failed", []v1alpha1.Step{collect, reset, reboot, replace}, "DFFF", "", v1alpha1.ReasonNotRepaired, "step reset"},
		{"a step of another is done", []v1alpha1.Step{reset, reboot, replace}, "FSD", "", v1alpha1.ReasonNotRepaired, "step reset"},
		{"a ticket is no alternative", []v1alpha1.Step{collect, reset, reboot, ticket}, "DFSD", "", v1alpha1.ReasonNotRepaired, "step reset"},
		{"a ticket does not ask", []v1alpha1.Step{reset, collect, ticket}, "FDD", "", v1alpha1.ReasonDone, ""},
		{"a ticket repairs nothing", []v1alpha1.Step{reset, ticket}, "FD", "", v1alpha1.ReasonNotRepaired, "no step is done"},
		{"a ticket that failed", []v1alpha1.Step{reset, ticket}, "DF", "", v1alpha1.ReasonDone, ""},
		{"asked without a name", []v1alpha1.Step{reset, any}, "FD", "", v1alpha1.ReasonDone, ""},
		{"asked without a name, and skipped", []v1alpha1.Step{collect, reset, any}, "DFS", "", v1alpha1.ReasonNotRepaired, "step reset"},
		{"a condition on the node asks about no step", []v1alpha1.Step{collect, named, reset}, "FSD", "", v1alpha1.ReasonDone, ""},
		{"a condition on a message asks about no state", []v1alpha1.Step{collect, heard, reset}, "FSD", "", v1alpha1.ReasonDone, ""},
		{"succeedsIf holds", []v1alpha1.Step{reset, reboot}, "FS", "steps.reset == 'Failed'", v1alpha1.ReasonDone, ""},
		{"succeedsIf is false", []v1alpha1.Step{reset, reboot}, "FD", "steps.reset == 'Done'", v1alpha1.ReasonNotRepaired, "spec.succeedsIf is false: steps.reset == 'Done', step reset failed"},
		{"succeedsIf says neither", []v1alpha1.Step{reset}, "D", "steps.rest == 'Done'", v1alpha1.ReasonMisconfigured, "spec.succeedsIf: no such key: rest"},
		{"a step failed the run", []v1alpha1.Step{{Name: "a"}}, "F", "true", v1alpha1.ReasonStepFailed, "step a: Verdict"},
		{"an object was lost", []v1alpha1.Step{reset, reboot}, "LS", "", v1alpha1.ReasonOutcomeUnknown, "step reset: Lost"},
		{"a name was taken", []v1alpha1.Step{reset, reboot}, "TS", "true", v1alpha1.ReasonOutcomeUnknown, "step reset: NameTaken"},
		{"an object was changed", []v1alpha1.Step{reset, reboot}, "CS", "", v1alpha1.ReasonOutcomeUnknown, "step reset: Drifted"},
		{"lost, whatever onFailure says", []v1alpha1.Step{{Name: "a", OnFailure: v1alpha1.Escalate}}, "L", "", v1alpha1.ReasonOutcomeUnknown, "step a: Lost"},
		{"the alternative was lost", []v1alpha1.Step{reset, reboot, replace}, "FLS", "", v1alpha1.ReasonOutcomeUnknown, "step reboot: Lost"},
		{"lost, and the alternative was done by an earlier version", []v1alpha1.Step{reset, reboot}, "LD", "", v1alpha1.ReasonOutcomeUnknown, "step reset: Lost"},
		{"lost behind one that failed the run", []v1alpha1.Step{{Name: "a"}, ticket}, "FL", "", v1alpha1.ReasonStepFailed, "step a: Verdict"},
		{"a step failed the run for good", []v1alpha1.Step{{Name: "a", OnFailure: v1alpha1.Escalate}}, "F", "", v1alpha1.ReasonEscalated, "step a: Verdict"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := v1alpha1.RepairChainSpec{Steps: tc.steps, SucceedsIf: tc.succeedsIf}
			c, err := Compile(spec)
			if err != nil {
				t.Fatal(err)
			}
			run := &v1alpha1.RepairRun{Status: Begin("gpu-1", spec)}
			for i, end := range tc.ends {
				state, reason := v1alpha1.StepFailed, "Verdict"
				switch end {
				case 'D':
					state = v1alpha1.StepDone
				case 'S':
					state = v1alpha1.StepSkipped
				case 'L':
					reason = artifact.ReasonLost
				case 'T':
					reason = artifact.ReasonTaken
				case 'C':
					reason = artifact.ReasonDrifted
				}
				over(&run.Status.Steps[i], state, reason, "", noon)
			}
			c.Conclude(run, noon)
			got := meta.FindStatusCondition(run.Status.Conditions, v1alpha1.ConditionSucceeded)
			if got.Reason != tc.reason || (got.Status == metav1.ConditionTrue) != (tc.reason == v1alpha1.ReasonDone) || !strings.Contains(got.Message, tc.message) {
				t.Errorf("%s %s: %s; want %s: %s", got.Status, got.Reason, got.Message, tc.reason, tc.message)
			}
		})
	}
}

// TestInconclusiveOutcomes: after a step that shows a mistake, or whose object was removed
// by others, no further step starts, and the run ends with that outcome.
func TestInconclusiveOutcomes(t *testing.T) {
	for reason, want := range map[string]string{
		ReasonExpression: v1alpha1.ReasonMisconfigured, ReasonRender: v1alpha1.ReasonMisconfigured,
		artifact.ReasonRefused: v1alpha1.ReasonMisconfigured, artifact.ReasonOutputMissing: v1alpha1.ReasonMisconfigured,
		artifact.ReasonLost: v1alpha1.ReasonOutcomeUnknown, artifact.ReasonTaken: v1alpha1.ReasonOutcomeUnknown,
		artifact.ReasonDrifted: v1alpha1.ReasonOutcomeUnknown,
		"StampFailed":          v1alpha1.ReasonMisconfigured, // the former name of ReasonRender
	} {
		for _, onFailure := range []v1alpha1.OnFailure{v1alpha1.Stop, v1alpha1.Continue, v1alpha1.Escalate} {
			c, run := chainOf(t, v1alpha1.Step{Name: "reset", OnFailure: onFailure},
				v1alpha1.Step{Name: "reboot", When: "steps.reset == 'Failed'"}, v1alpha1.Step{Name: "ticket", Always: true})
			over(&run.Status.Steps[0], v1alpha1.StepFailed, reason, "no such key", noon)
			for i := range run.Status.Steps {
				if turn, ahead := c.Consider(run, i, Facts{Now: noon}); turn != nil || !ahead {
					t.Errorf("%s, %s: step %d: turn %v, ahead %v", reason, onFailure, i, turn, ahead)
				}
			}
			c.Conclude(run, noon)
			end := meta.FindStatusCondition(run.Status.Conditions, v1alpha1.ConditionSucceeded)
			if end.Status != metav1.ConditionFalse || end.Reason != want || end.Message != "step reset: "+reason+": no such key" {
				t.Errorf("%s, %s: %+v", reason, onFailure, end)
			}
		}
	}
}
