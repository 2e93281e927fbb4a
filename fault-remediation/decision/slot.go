package decision

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/action"
	"github.com/nvidia/nvsentinel/internal/healthrule"
	"github.com/nvidia/nvsentinel/internal/kubelet"
)

// slot is what came before in the place of the next object: one session, one
// group, one machine. used goes across sessions.
type slot struct {
	machine string
	// ordinal of the next object.
	ordinal int
	// used are the attempts of the machine and group within the window.
	used []record.Attempt
	// refused attempts in a row at the slot's end.
	refused int
	// escalated: the slot's last attempt is not to be tried again.
	escalated bool
	// misconfigured: the slot's last attempt was of a chain that is wrong.
	misconfigured bool
	// unknown: nobody knows what the slot's last attempt, of a chain, did to the node.
	unknown bool
	// failedAt and pause are the wait after a failure.
	failedAt time.Time
	pause    time.Duration
	// last describes the slot's last attempt.
	last string
	// away is the last attempt, of whatever session, after which nothing proves that the
	// machine has been Ready; nil when there is none.
	away *record.Attempt
}

// slot adds up the attempts in the records; a reserved name counts for the
// ordinal only.
func (d decision) slot(next job, reserved *Ref) slot {
	s := slot{machine: fault.Machine(d.v.Node.Identity), ordinal: 1, last: "none"}
	since := d.now.Add(-next.repair.Attempts.Window)
	var past []record.Attempt
	for _, x := range attempts(d.v.Records) {
		a, mine := x.Attempt, x.Attempt.Session == d.v.Node.Session
		if a.Machine != s.machine || a.Group != next.repair.Group {
			continue
		}
		if mine {
			s.ordinal = max(s.ordinal, a.Ordinal+1)
		}
		if reserved != nil && reserved.Record.ID == x.Record.ID && reserved.Index == x.Index {
			continue
		}
		// A time in the future, by a clock that was wrong, counts too: the limit
		// must hold whatever the clocks do.
		if a.SignalSent && a.SubmittedAt.After(since) {
			s.used = append(s.used, a)
		}
		if mine && a.FinishedAt != nil {
			past = append(past, a)
		}
	}
	slices.SortFunc(past, func(a, b record.Attempt) int { return cmp.Compare(b.Ordinal, a.Ordinal) })
	s.lessons(past, next)
	s.away = d.away(next, since)
	return s
}

// away is the newest attempt since a time whose signal may have been sent, that
// did not succeed, and after which the Node is neither Ready nor under another
// boot. A Ready Node under the old boot shows that the signal did not take, if its
// kubelet is alive: that of a machine that is off may report Ready as well.
func (d decision) away(next job, since time.Time) *record.Attempt {
	n := d.v.Node
	if n.Ready && n.Kubelet.State == kubelet.Alive {
		return nil
	}
	return newest(d.v.Records, func(a record.Attempt) bool {
		return failed(a) && d.alike(a, next.repair) && a.Machine == fault.Machine(n.Identity) && a.SubmittedAt.After(since) && !d.bootedSince(a)
	})
}

// alike reports whether a new repair would do to the machine what an attempt may have done:
// of the same group or kind, or both restart it.
func (d decision) alike(a record.Attempt, next action.Action) bool {
	restarts := func(rank int) bool { return rank >= action.RankReboot && rank < action.RankReplace }
	return a.Group == next.Group || a.Kind == next.GVK.Kind || (restarts(d.repairs.Rank(a.Action)) && restarts(next.Rank))
}

// bootedSince reports whether the Node has another boot than before an attempt.
func (d decision) bootedSince(a record.Attempt) bool {
	n := d.v.Node
	return a.PriorBootID != "" && n.Identity.BootID != "" && a.PriorBootID != n.Identity.BootID && a.Machine == fault.Machine(n.Identity)
}

// lessons reads the slot's finished attempts, newest first: the run of failures at its end
// and the run of refusals. Names that were released do not count.
func (s *slot) lessons(past []record.Attempt, next job) {
	tried := only(past, func(a record.Attempt) bool { return a.Reason != string(Release) })
	if len(tried) == 0 {
		return
	}
	s.last = tried[0].Kind + " " + tried[0].Name + ": " + tried[0].Reason
	if tried[0].Message != "" {
		s.last += ", " + tried[0].Message
	}
	s.escalated = tried[0].Reason == string(ChainEscalated)
	s.misconfigured = tried[0].Reason == string(ChainMisconfigured)
	s.unknown = tried[0].Reason == string(ChainUnknown)
	failures := runOf(tried, func(a record.Attempt) bool { return a.State != string(healthrule.Healthy) })
	s.refused = runOf(tried, func(a record.Attempt) bool { return !a.SignalSent && a.State == string(healthrule.Unhealthy) })
	if failures > 0 {
		s.failedAt, s.pause = *tried[0].FinishedAt, next.repair.Pause(failures)
	}
}

// history lists the used attempts, oldest first.
func (s slot) history() string {
	byTime := slices.SortedStableFunc(slices.Values(s.used), func(a, b record.Attempt) int { return a.SubmittedAt.Compare(b.SubmittedAt) })
	var reported []string
	for _, a := range byTime {
		text := a.Kind + " " + a.Name + " " + a.State
		if a.State != string(healthrule.Healthy) && a.Message != "" {
			text += " (" + a.Message + ")"
		}
		reported = append(reported, text)
	}
	return strings.Join(reported, ", ")
}

func runOf(list []record.Attempt, is func(record.Attempt) bool) int {
	for i, a := range list {
		if !is(a) {
			return i
		}
	}
	return len(list)
}
