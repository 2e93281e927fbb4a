package triage

import (
	"time"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/healthrule"
	"github.com/nvidia/nvsentinel/internal/remediation"
)

// Turn is what comes next for an unhealthy node.
type Turn string

// The turns.
const (
	// TurnBegin: the step's remediation is not there.
	TurnBegin Turn = "begin"
	// TurnRun: the step's remediation is at work.
	TurnRun Turn = "run"
	// TurnRemoving: the step's remediation was asked to go and is not gone.
	TurnRemoving Turn = "removing"
	// TurnForeign: somebody else's object is where the step's remediation would be.
	TurnForeign Turn = "foreign"
	// TurnOver: the step's remediation is given up; the next one has its turn.
	TurnOver Turn = "over"
	// TurnNone: no step is left.
	TurnNone Turn = "none left"
)

// Escalation is the result of Escalate for a node.
type Escalation struct {
	Turn Turn
	// Step whose turn it is; nil if none is left.
	Step *Step
	// Remediation of the step, if it is there.
	Remediation *Remediation
	// Why a remediation is given up.
	Why string
	// NotifyRemediator: the remediator has to be notified that the remediation is given up. One
	// that reports success, or knows already, is not notified.
	NotifyRemediator bool
	// In is until the step's time is up; 0 is never.
	In time.Duration
}

// Escalate finds the step whose turn it is for a node: the first without a record
// of its end. tried are the node's records, objects the node's remediations.
// A check with a single template waits for ever.
func Escalate(steps []Step, tried []v1alpha1.Remediation, objects []*Remediation, now time.Time) Escalation {
	for i := range steps {
		step := &steps[i]
		if ended(step, tried) {
			continue
		}
		e := Escalation{Turn: TurnBegin, Step: step}
		for _, r := range objects {
			if step.makes(r.Kind, r.Template) && (e.Remediation == nil || r.Owned) {
				e.Remediation = r
			}
		}
		if e.Remediation != nil {
			e.evaluate(now)
		}
		return e
	}
	return Escalation{Turn: TurnNone}
}

// ended reports whether a step was tried and given up.
func ended(step *Step, tried []v1alpha1.Remediation) bool {
	for _, t := range tried {
		if t.TimedOut != nil && step.makes(kindOf(t.Resource), t.TemplateName) {
			return true
		}
	}
	return false
}

// evaluate looks at the remediation that is there. Whatever the remediator reports, it is given
// the time of its step: that it succeeded shows on the node, and ends no wait.
func (e *Escalation) evaluate(now time.Time) {
	r, limit := e.Remediation, e.Step.Timeout
	health := healthrule.Result{State: healthrule.Unknown}
	if r.Succeeded == "False" {
		health.State = healthrule.Unhealthy
	}
	since := r.Created
	if since.After(now) { // by a clock that has been set right since: the next step is harsher, and not hurried
		since = now
	}
	v := remediation.VerdictTimeout{Since: since, Timeout: limit}.Evaluate(health, now)
	switch {
	case !r.Owned:
		e.Turn = TurnForeign
	case r.Deleting:
		e.Turn = TurnRemoving
	case limit == 0:
		e.Turn = TurnRun
	case v.Outcome == remediation.Failed:
		e.Turn, e.Why, e.NotifyRemediator = TurnOver, "the remediator reports a failure", !r.Abandoned
	case v.Outcome == remediation.TimedOut:
		e.Turn, e.Why, e.NotifyRemediator = TurnOver, "its timeout of "+limit.String()+" has expired", !r.Abandoned && r.Succeeded != "True"
	case r.Abandoned:
		e.Turn, e.Why = TurnOver, "its timeout was reported before"
	default:
		e.Turn, e.In = TurnRun, v.Left+settle
	}
}
