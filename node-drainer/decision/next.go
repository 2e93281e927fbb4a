package decision

import (
	"cmp"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// Next is the next step. Asking again after a step that does not end the pass gives
// the step after it. PERSIST_ONLY records count for nothing, regardless of who put them
// into the view.
func Next(v View, p Policy, now time.Time) Step {
	v.Records = record.Acting(v.Records)
	if s, ok := cancel(v); ok {
		return s
	}
	open := openWork(v.Records)
	if len(open) == 0 {
		return unlessNewer(v, afterwards(v, p, now), now.Add(p.Recheck))
	}
	if s, ok := fail(open); ok {
		return s
	}
	undone := inSession(open, v.Node.Session)
	if s, ok := blocked(v, undone, p, now); ok {
		return s
	}
	if s, ok := skip(v, undone, p); ok {
		return s
	}
	d := drain{view: v, policy: p, undone: undone, now: now}
	return d.next()
}

// owed reports whether a drain is owed to a record: an open fault in quarantine whose
// drain is not over.
func owed(r record.Record) bool {
	return record.InQuarantine(r) && record.Open(r) && !record.DrainFinal(r)
}

// unlessNewer is the step when nothing is left for this version to drain: a wait, if
// something is left for a newer one.
func unlessNewer(v View, s Step, until time.Time) Step {
	newer := func(r record.Record) bool { return owed(r) && record.NeedsNewer(r) != "" }
	if !s.EndsPass() || !slices.ContainsFunc(v.Records, newer) {
		return s
	}
	if s.Kind == Nothing {
		s.Until = until
	}
	s.Kind, s.Why = Wait, NewerVersion
	return s
}

// openWork are the records that this version drains, in the store's order.
func openWork(records []record.Record) []record.Record {
	var out []record.Record
	for _, r := range records {
		if owed(r) && record.NeedsNewer(r) == "" {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b record.Record) int {
		return cmp.Or(cmp.Compare(a.Append, b.Append), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// cancel ends the drains of records whose quarantine has ended. Only the records
// count: they are written before the Node is.
func cancel(v View) (Step, bool) {
	s := Step{Kind: Cancel, Why: FaultsCleared}
	for _, r := range v.Records {
		if !r.IsFault() || record.DrainFinal(r) || record.NeedsNewer(r) != "" {
			continue
		}
		switch {
		case r.Status.NodeQuarantined == record.QuarantineCanceled:
			s.Why = QuarantineCancelled
			s.update(r, record.EvictionCanceled, "the quarantine was cancelled")
		case record.InQuarantine(r) && !record.Open(r):
			s.update(r, record.EvictionCanceled, "the fault was cleared")
		}
	}
	return s, len(s.Updates) > 0
}

// fail ends the drains that can never be done.
func fail(open []record.Record) (Step, bool) {
	s := Step{Kind: Fail, Why: NoSession}
	for _, r := range open {
		if r.Status.Session == "" {
			s.update(r, record.EvictionFailed, "the record is in quarantine but names no quarantine session")
		}
	}
	return s, len(s.Updates) > 0
}

func inSession(records []record.Record, session string) []record.Record {
	var out []record.Record
	for _, r := range records {
		if session != "" && r.Status.Session == session {
			out = append(out, r)
		}
	}
	return out
}

// blocked returns the step for a drain that cannot go on at all.
func blocked(v View, undone []record.Record, p Policy, now time.Time) (Step, bool) {
	wait := Step{Kind: Wait, Until: now.Add(p.Recheck)}
	marks := marksOf(v)
	switch {
	case !v.Node.Exists:
		wait.Why = NodeMissing
	case len(undone) == 0:
		wait.Why = SessionNotShown
	case v.Node.Unknown:
		wait.Why = SessionUnknown
	case !marks.wanted:
		return Step{Kind: Nothing, Why: NoMarks}, true
	case v.Node.Released:
		wait.Why = ManuallyReleased
	case !marks.there:
		wait.Why = NodeSchedulable
	default:
		return Step{}, false
	}
	return wait, true
}

// marks are whether the session asks to keep pods away, and whether the Node does.
type marks struct{ wanted, there bool }

func marksOf(v View) marks {
	var m marks
	for _, r := range v.Records {
		if r.Status.Session != v.Node.Session || !record.Open(r) {
			continue
		}
		effects := r.Status.QuarantineVerdict.Effects
		m.wanted = m.wanted || effects.Cordon
		for _, t := range effects.Taints {
			if nodemark.KeepsOff(t) {
				m.wanted = true
				m.there = m.there || slices.Contains(v.Node.Taints, t)
			}
		}
	}
	m.there = m.there || v.Node.Unschedulable
	return m
}

// skip finishes the records whose event asked not to drain.
func skip(v View, undone []record.Record, p Policy) (Step, bool) {
	s := Step{Kind: Finish, Why: SkipRequested, Session: v.Node.Session}
	for _, r := range undone {
		if requiresNoAction(r, p) {
			s.update(r, record.AlreadyDrained, "the event requested no drain")
		}
	}
	if len(s.Updates) == len(undone) {
		s.Label = drainedLabel(v.Node.State)
	}
	return s, len(s.Updates) > 0
}

func requiresNoAction(r record.Record, p Policy) bool {
	extent, _ := p.Eviction.ExtentOf(r)
	return extent.IsNothing()
}

// afterwards is what is left when no record is owed a drain. A node that was
// drained is kept empty until it is repaired: its repair waits for pods that
// are back, and nobody else would move them.
func afterwards(v View, p Policy, now time.Time) Step {
	done := inSession(drainedFaults(v.Records), v.Node.Session)
	s := Step{Kind: Nothing, Why: NoOpenWork, Session: v.Node.Session}
	var waiting []record.Record
	for _, r := range done {
		if r.Status.FaultRemediated == nil && !requiresNoAction(r, p) {
			waiting = append(waiting, r)
		}
	}
	if _, no := blocked(v, waiting, p, now); !no {
		s = drain{view: v, policy: p, undone: waiting, now: now}.keepEmpty()
	}
	if len(done) > 0 && v.Node.State == nodemark.Draining {
		s.Label = nodemark.DrainSucceeded // the record that carried the drain was cancelled
	}
	return s
}

// drainedFaults are the open faults whose drain was done.
func drainedFaults(records []record.Record) []record.Record {
	var out []record.Record
	for _, r := range records {
		if record.InQuarantine(r) && record.Open(r) && record.DrainSucceeded(r) {
			out = append(out, r)
		}
	}
	return out
}

// drainingLabel and drainedLabel are what this service may write over a state;
// from remediating on the label belongs to fault-remediation. A drain that had nothing to
// move sets no label, and its end sets none either: the record shows it, and the label
// of the repair follows a moment later.
func drainingLabel(state nodemark.State) nodemark.State {
	switch state {
	case "", nodemark.Quarantined, nodemark.DrainSucceeded:
		return nodemark.Draining
	case nodemark.Draining, nodemark.Remediating, nodemark.RemediationSucceeded, nodemark.RemediationFailed:
	}
	return ""
}

func drainedLabel(state nodemark.State) nodemark.State {
	switch state {
	case nodemark.Draining:
		return nodemark.DrainSucceeded
	case "", nodemark.Quarantined, nodemark.DrainSucceeded, nodemark.Remediating, nodemark.RemediationSucceeded, nodemark.RemediationFailed:
	}
	return ""
}

func (s *Step) update(r record.Record, e record.Eviction, message string) {
	s.Updates = append(s.Updates, Update{ID: r.ID, Status: record.EvictionStatus{
		Status: e, Message: message, LeftAlone: r.Status.UserPodsEvictionStatus.LeftAlone,
	}})
}
