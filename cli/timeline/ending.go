package timeline

import (
	"fmt"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// repair returns the repair objects of a fault and how the repair ended.
func (b builder) repair(r record.Record) []Step {
	rem := r.Status.Remediation
	if rem == nil {
		return nil
	}
	var steps []Step
	for _, a := range rem.Attempts {
		steps = append(steps, b.attempt(a)...)
	}
	if s, ok := verdictOfRepair(r, rem); ok {
		steps = append(steps, s)
	}
	return steps
}

// verdictOfRepair is how the repair of a fault ended, unless its last attempt
// has reported it already.
func verdictOfRepair(r record.Record, rem *record.Remediation) (Step, bool) {
	s := Step{Kind: Outcome, At: instant(r.Status.LastRemediationTimestamp), Text: joined(string(rem.Outcome), joined(rem.Reason, rem.Message))}
	switch rem.Outcome {
	case record.OutcomeSucceeded:
		return s, len(rem.Attempts) == 0
	case record.OutcomeCovered:
		if rem.Cause != r.ID {
			s.Text, s.Record = "Superseded by the repair of another record: "+joined(rem.Reason, rem.Message), rem.Cause
		}
		return s, true
	case record.OutcomeNeedsHuman:
		s.Mood = Bad
		return s, true
	case record.OutcomeCanceled:
		return s, true
	}
	return s, false
}

// attempt is one repair object: asked for, seen in the cluster, ended.
func (b builder) attempt(a record.Attempt) []Step {
	name := a.Kind + "/" + a.Name
	made := Step{Kind: Repair, At: a.SubmittedAt, Object: name, Text: fmt.Sprintf("attempt %d (%s, group %s)", a.Ordinal, a.Action, a.Group)}
	if a.UID == "" {
		made.Text += ", name reserved, object not confirmed"
	} else {
		made.Text += ", uid " + a.UID
	}
	steps := []Step{made}
	o, seen := b.objects[a.UID]
	switch underWay := a.UID != "" && a.FinishedAt == nil; {
	case seen:
		steps = append(steps, progress(o)...)
	case underWay && a.Chain != "":
		steps = append(steps, Step{Kind: Progress, Object: name, Text: "run of chain " + a.Chain + ", for its steps run nvsentinel trace " + a.Name})
	case underWay && b.facts.Cluster.Complete():
		steps = append(steps, Step{Kind: Progress, Object: name, Mood: Alert, Text: "not found in the cluster"})
	}
	steps = append(steps, stepsOf(a)...)
	if a.FinishedAt != nil {
		end := Step{Kind: Outcome, At: *a.FinishedAt, Object: name, Text: joined(joined(a.State, a.Reason), a.Message)}
		end.Mood = Bad
		if a.State == "Healthy" {
			end.Mood = Good
		}
		steps = append(steps, end)
	}
	return steps
}

// stepsOf are those of a run that has ended.
func stepsOf(a record.Attempt) []Step {
	var out []Step
	for _, s := range a.Steps {
		step := Step{Kind: Progress, At: instant(s.FinishedAt), Object: s.Object, Text: joined(joined("step "+s.Name+"="+s.State, s.Reason), s.Message)}
		if s.State == "Failed" {
			step.Mood = Alert
		}
		out = append(out, step)
	}
	return out
}

// progress is what the object itself shows, oldest first.
func progress(o Object) []Step {
	var steps []Step
	for _, c := range o.Status {
		if c.Status != "True" && c.Message == "" {
			continue
		}
		steps = append(steps, Step{
			Kind: Progress, At: c.Since, Object: o.Kind + "/" + o.Name, Text: joined(joined(c.Type+"="+c.Status, c.Reason), c.Message),
		})
	}
	slices.SortStableFunc(steps, func(a, b Step) int { return a.At.Compare(b.At) })
	return steps
}

// end returns what cleared a fault's entries: each clearing once.
func (b builder) end(r record.Record) []Step {
	var steps []Step
	reported := map[string]bool{}
	cleared := 0
	var last time.Time
	for _, f := range r.Status.Faults {
		if f.ClearedTimestamp == nil {
			continue
		}
		cleared++
		if f.ClearedTimestamp.After(last) {
			last = *f.ClearedTimestamp
		}
		if !reported[f.ClearedBy] {
			reported[f.ClearedBy] = true
			steps = append(steps, b.cause(f)...)
		}
	}
	if cleared == 0 {
		return nil
	}
	s := Step{Kind: Cleared, At: last, Text: fmt.Sprintf("%d of %d faults", cleared, len(r.Status.Faults))}
	if cleared == len(r.Status.Faults) {
		s.Mood = Good
	}
	for id := range reported {
		if b.byID[id].Status.NodeQuarantined == record.UnQuarantined && b.byID[id].Status.Session == r.Status.Session {
			s.Text += ", no fault left, the node is released"
		}
	}
	return append(steps, s)
}

// causes are clearings that no record stands behind.
var causes = map[string]string{
	record.ClearedManual:   "the node marks were removed manually",
	record.ClearedNodeGone: "the machine no longer exists",
}

// cause is what cleared an entry.
func (b builder) cause(f record.Fault) []Step {
	if text, ok := causes[f.ClearedBy]; ok {
		return []Step{{Kind: Recovery, At: instant(f.ClearedTimestamp), Text: joined(f.ClearedBy, text)}}
	}
	r, ok := b.byID[f.ClearedBy]
	if !ok {
		return []Step{{Kind: Recovery, Record: f.ClearedBy, Text: "a record that is no longer stored"}}
	}
	text := fmt.Sprintf("%s reports %s healthy: %s", r.Event.Agent, gist(r.Event), r.Event.Message)
	if boot := r.Event.BootID(); boot != "" {
		text += ", boot " + boot
	}
	return []Step{{Kind: Recovery, At: r.CreatedAt, Record: r.ID, Text: text}}
}

// waiting is what an unfinished fault waits for.
func (b builder) waiting(r record.Record) []Step {
	var st Standing
	switch {
	case record.Open(r):
		st = ofOpen([]record.Record{r})
	case record.Pending(r):
		st, _ = ofBacklog(observation{b.facts.Sighting, b.facts.Cluster.Read}, []record.Record{r})
	default:
		return nil
	}
	s := Step{Kind: Waiting, At: b.facts.Now, Mood: Alert, Text: string(st.Phase), Object: st.Object}
	switch st.Phase { //nolint:exhaustive // elsewhere the reason is not in a step yet
	case Draining:
		st.Reason = "node-drainer is evicting pods"
	case NeedsHuman:
		st.Reason, s.Mood = "manual intervention required", Bad
	}
	s.Text = joined(s.Text, st.Reason)
	return []Step{s}
}
