package plan

import (
	"cmp"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/healthrule"
)

// slot is what came before in the place of the next object: one session, one
// group, one machine. used goes across sessions.
type slot struct {
	machine string
	// ordinal of the next object.
	ordinal int
	// used attempts of the machine and group within the window.
	used int
	// refused attempts in a row at the slot's end.
	refused int
	// notBefore is the end of the pause after a failure.
	notBefore time.Time
	// last is what the slot's last attempt said.
	last string
}

// slot adds up the attempts in the records; a reserved name counts for the
// ordinal only.
func (d decision) slot(next job, reserved *Ref) slot {
	s := slot{machine: fault.Machine(d.v.Node.Identity), ordinal: 1, last: "none"}
	since := d.now.Add(-next.repair.Attempts.Window)
	var past []record.Attempt
	for _, x := range d.attempts(s.machine, next.repair.Group) {
		a, mine := x.Attempt, x.Attempt.Session == d.v.Node.Session
		if mine {
			s.ordinal = max(s.ordinal, a.Ordinal+1)
		}
		if reserved != nil && reserved.Record.ID == x.Record.ID && reserved.Index == x.Index {
			continue
		}
		if a.SignalSent && a.SubmittedAt.After(since) {
			s.used++
		}
		if mine && a.FinishedAt != nil {
			past = append(past, a)
		}
	}
	slices.SortFunc(past, func(a, b record.Attempt) int { return cmp.Compare(b.Ordinal, a.Ordinal) })
	s.lessons(past, next)
	return s
}

// attempts are all attempts of a machine and group, in whatever session.
func (d decision) attempts(machine, group string) []Ref {
	var out []Ref
	for _, r := range d.v.Records {
		for i, a := range trace(r) {
			if a.Machine == machine && a.Group == group {
				out = append(out, Ref{r, i, a})
			}
		}
	}
	return out
}

// lessons reads the slot's finished attempts, newest first: the run of failures
// at its end and the run of refusals. Names given back teach nothing.
func (s *slot) lessons(past []record.Attempt, next job) {
	tried := only(past, func(a record.Attempt) bool { return a.Reason != string(Release) })
	if len(tried) == 0 {
		return
	}
	s.last = tried[0].Kind + " " + tried[0].Name + ": " + tried[0].Reason
	if tried[0].Message != "" {
		s.last += ", " + tried[0].Message
	}
	failures := runOf(tried, func(a record.Attempt) bool { return a.State != string(healthrule.Healthy) })
	s.refused = runOf(tried, func(a record.Attempt) bool { return !a.SignalSent && a.State == string(healthrule.Unhealthy) })
	if failures > 0 {
		s.notBefore = tried[0].FinishedAt.Add(next.repair.Pause(failures))
	}
}

func runOf(list []record.Attempt, is func(record.Attempt) bool) int {
	for i, a := range list {
		if !is(a) {
			return i
		}
	}
	return len(list)
}
