package chain

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/artifact"
)

// inconclusive are the reasons of failed steps that give no result about the node, with the
// reason for which the run ends: the chain or the template is wrong, or others took the
// object away. They select no other step.
var inconclusive = map[string]string{
	ReasonExpression:             v1alpha1.ReasonMisconfigured,
	ReasonRender:                 v1alpha1.ReasonMisconfigured,
	"StampFailed":                v1alpha1.ReasonMisconfigured, // former name of ReasonRender, read until v1.0
	artifact.ReasonRefused:       v1alpha1.ReasonMisconfigured,
	artifact.ReasonOutputMissing: v1alpha1.ReasonMisconfigured,
	artifact.ReasonLost:          v1alpha1.ReasonOutcomeUnknown,
	artifact.ReasonTaken:         v1alpha1.ReasonOutcomeUnknown,
	artifact.ReasonDrifted:       v1alpha1.ReasonOutcomeUnknown,
}

// endsRun is the reason for which a run ends with a failed step that gives no result about
// the node; empty for every other step.
func endsRun(st v1alpha1.StepStatus) string {
	if st.State != v1alpha1.StepFailed {
		return ""
	}
	return inconclusive[st.Reason]
}

// undecided is the first step that failed with no result about the node; -1 is none.
func undecided(steps []v1alpha1.StepStatus) int {
	return slices.IndexFunc(steps, func(st v1alpha1.StepStatus) bool { return endsRun(st) != "" })
}

// failed is the first of the steps whose failure is the run's; -1 is none.
func (c *Chain) failed(steps []v1alpha1.StepStatus) int {
	for i, st := range steps {
		if st.State == v1alpha1.StepFailed && c.Steps[i].OnFailure != v1alpha1.Continue && endsRun(st) == "" {
			return i
		}
	}
	return -1
}

// Conclude writes the conditions of a run from its steps; ended reports whether the run is
// over and nothing more begins.
func (c *Chain) Conclude(run *v1alpha1.RepairRun, now time.Time) (ended bool) {
	steps := run.Status.Steps
	failed, unknown := c.failed(steps), undecided(steps)
	open := slices.IndexFunc(steps, func(st v1alpha1.StepStatus) bool {
		return !slices.Contains([]v1alpha1.StepState{v1alpha1.StepDone, v1alpha1.StepFailed, v1alpha1.StepSkipped}, st.State)
	})
	run.Status.Step = ""
	switch {
	case open >= 0 && !ends(steps[open].Reason):
		run.Status.Step = steps[open].Name
		conclude(run, metav1.ConditionUnknown, v1alpha1.ReasonStarted, stepMessage(steps[open]), now)
		return false
	case unknown >= 0 && (failed < 0 || unknown < failed):
		conclude(run, metav1.ConditionFalse, endsRun(steps[unknown]), stepMessage(steps[unknown]), now)
	case failed >= 0 && c.Steps[failed].OnFailure == v1alpha1.Escalate:
		conclude(run, metav1.ConditionFalse, v1alpha1.ReasonEscalated, stepMessage(steps[failed]), now)
	case failed >= 0:
		conclude(run, metav1.ConditionFalse, v1alpha1.ReasonStepFailed, stepMessage(steps[failed]), now)
	case open >= 0:
		conclude(run, metav1.ConditionFalse, steps[open].Reason, stepMessage(steps[open]), now)
	default:
		c.finish(run, now)
	}
	return true
}

// finish ends a run in which no step failed the run: it has succeeded if succeedsIf is true
// or, without that, if a step is done and none that failed lacks an alternative.
func (c *Chain) finish(run *v1alpha1.RepairRun, now time.Time) {
	steps := run.Status.Steps
	fail := func(reason, message string) { conclude(run, metav1.ConditionFalse, reason, message, now) }
	if c.succeedsIf != nil {
		vars, err := variables(run)
		var holds bool
		if err == nil {
			holds, err = truth(c.succeedsIf, vars)
		}
		switch {
		case err != nil:
			fail(v1alpha1.ReasonMisconfigured, "spec.succeedsIf: "+err.Error())
			return
		case !holds:
			fail(v1alpha1.ReasonNotRepaired, "spec.succeedsIf is false: "+c.succeedsIf.text+c.failures(steps))
			return
		}
	} else if i := c.unanswered(steps); i >= 0 {
		fail(v1alpha1.ReasonNotRepaired, stepMessage(steps[i])+", no alternative step is done")
		return
	} else if !c.anyDone(steps) {
		fail(v1alpha1.ReasonNotRepaired, "no step is done"+c.failures(steps))
		return
	}
	conclude(run, metav1.ConditionTrue, v1alpha1.ReasonDone, "every step has ended", now)
}

// unanswered is the first failed step that other steps ask about, and that has no
// alternative; -1 is none. A step that no other asks about is one that may fail.
func (c *Chain) unanswered(steps []v1alpha1.StepStatus) int {
	for i, st := range steps {
		if st.State == v1alpha1.StepFailed && c.stateRead(i) && !c.answered(steps, i) {
			return i
		}
	}
	return -1
}

// readsState reports whether the condition of step j reads the state of step i, and the step is
// part of the repair: one that is always done only reports.
func (c *Chain) readsState(j, i int) bool {
	return j > i && !c.Steps[j].Always && c.Steps[j].when != nil && c.Steps[j].when.reads.state(c.Steps[i].Name)
}

// stateRead reports whether a later step of the repair depends on the state of a step.
func (c *Chain) stateRead(i int) bool {
	return slices.ContainsFunc(c.indexes(), func(j int) bool { return c.readsState(j, i) })
}

// answered reports whether a failed step has an alternative: a later step that asks about
// its state and is done, or that failed and has an alternative itself.
func (c *Chain) answered(steps []v1alpha1.StepStatus, i int) bool {
	return slices.ContainsFunc(c.indexes(), func(j int) bool {
		if !c.readsState(j, i) {
			return false
		}
		return steps[j].State == v1alpha1.StepDone || steps[j].State == v1alpha1.StepFailed && c.answered(steps, j)
	})
}

func (c *Chain) indexes() (out []int) {
	for i := range c.Steps {
		out = append(out, i)
	}
	return out
}

// anyDone reports whether a step of the repair is done.
func (c *Chain) anyDone(steps []v1alpha1.StepStatus) bool {
	for i, st := range steps {
		if st.State == v1alpha1.StepDone && !c.Steps[i].Always {
			return true
		}
	}
	return false
}

// failures lists the steps that failed.
func (c *Chain) failures(steps []v1alpha1.StepStatus) (out string) {
	for _, st := range steps {
		if st.State == v1alpha1.StepFailed {
			out += fmt.Sprintf(", step %s failed: %s", st.Name, reasonText(st))
		}
	}
	return out
}

// ends reports whether a step that waits for this reason will never begin.
func ends(reason string) bool {
	return reason == v1alpha1.ReasonSessionOver || reason == v1alpha1.ReasonNodeExcluded
}

// stepMessage is the message of a run about the step that decides its result.
func stepMessage(st v1alpha1.StepStatus) string {
	return "step " + st.Name + ": " + reasonText(st)
}

// reasonText is a step's reason, and its message if it has one.
func reasonText(st v1alpha1.StepStatus) string {
	if st.Message == "" {
		return st.Reason
	}
	return st.Reason + ": " + st.Message
}

// Reject ends a run whose chain can not be used.
func Reject(run *v1alpha1.RepairRun, problem string, now time.Time) {
	conclude(run, metav1.ConditionFalse, v1alpha1.ReasonRejected, problem, now)
}

// Ended reports whether a run has come to its end.
func Ended(run *v1alpha1.RepairRun) bool {
	c := meta.FindStatusCondition(run.Status.Conditions, v1alpha1.ConditionSucceeded)
	return c != nil && c.Status != metav1.ConditionUnknown
}

func conclude(run *v1alpha1.RepairRun, succeeded metav1.ConditionStatus, reason, message string, now time.Time) {
	processing := metav1.ConditionTrue
	if succeeded != metav1.ConditionUnknown {
		processing, run.Status.Step = metav1.ConditionFalse, ""
	}
	c := metav1.Condition{
		Type: v1alpha1.ConditionSucceeded, Status: succeeded, Reason: reason, Message: bounded(message), ObservedGeneration: run.Generation, LastTransitionTime: metav1.NewTime(now),
	}
	meta.SetStatusCondition(&run.Status.Conditions, c)
	c.Type, c.Status = v1alpha1.ConditionProcessing, processing
	meta.SetStatusCondition(&run.Status.Conditions, c)
}
