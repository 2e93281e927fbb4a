package decision

import (
	"fmt"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// unrepaired reports whether an open fault of the Node's session asks for no repair: nothing
// but its recovery ends it.
func (d decision) unrepaired(r record.Record) bool {
	n := d.v.Node
	mine := n.Presence == Present && n.Marked && !n.Unknown && n.Session != "" && r.Status.Session == n.Session
	return mine && record.Open(r) && unremediated(r) && record.DrainSucceeded(r) &&
		d.repairs.RequiresNoAction(record.RepairAction(r))
}

// dueBy is when a person is asked about a repair that does not begin, for the reason that
// its record waits for; zero is never.
func (d decision) dueBy(r record.Record, why Reason) time.Time {
	limit := d.policy.UnrepairedAfter
	if limit <= 0 {
		return time.Time{}
	}
	return d.now.Add(limit - d.elapsed(d.waitedSince(r, why, limit), limit))
}

// overdue reports whether a person is asked about such a repair now.
func (d decision) overdue(r record.Record, why Reason) bool {
	reported, by := waiting(r), d.dueBy(r, why)
	return reported != nil && reported.Reason == string(why) && !by.IsZero() && !d.now.Before(by)
}

// unrepairedWait returns the step for the record of a fault that asks for no repair.
func (d decision) unrepairedWait(r record.Record) Step {
	message := fmt.Sprintf("no remediation is configured for this fault (action %s), "+
		"the node stays in quarantine until its recovery is reported", actionText(r))
	return Step{Reason: NoRepair, Until: d.dueBy(r, NoRepair), Message: message}
}

// unrecovered leaves faults that ask for no repair to a person when their recovery does not
// come.
func (d decision) unrecovered(mine []record.Record) (Step, bool) {
	e := d.edit()
	for _, r := range only(mine, d.unrepaired) {
		if d.overdue(r, NoRepair) {
			e.human(r, NoRepair, fmt.Sprintf("no remediation is configured for this fault (action %s), and its recovery was not reported within %s. "+
				"Inspect node %s. It leaves quarantine when the fault is reported healthy or the node is released manually",
				actionText(r), d.policy.UnrepairedAfter, d.v.Node.Name))
		}
	}
	return e.step(NoRepair, "manual intervention required: no remediation is configured, and no recovery was reported"), len(e.writes) > 0
}

// nextOverdue is the time until the first person is asked about a fault that asks for no
// repair; 0 if nobody is.
func (d decision) nextOverdue() (next time.Duration) {
	for _, r := range only(d.v.Records, d.unrepaired) {
		if by := d.dueBy(r, NoRepair); !by.IsZero() {
			if left := by.Sub(d.now); next == 0 || left < next {
				next = left
			}
		}
	}
	return max(next, 0)
}

func actionText(r record.Record) record.Action {
	if name := record.RepairAction(r); name != "" {
		return name
	}
	return record.ActionNone
}

// Unrepaired returns the writes of a step by which a record first states that its fault
// asks for no repair.
func Unrepaired(s Step, records []record.Record) []Write {
	isNoRepair := func(w *record.Wait) bool { return w != nil && w.Reason == string(NoRepair) }
	return only(s.Writes, func(w Write) bool {
		reported := func(r record.Record) bool { return r.ID == w.ID && isNoRepair(waiting(r)) }
		return isNoRepair(w.Status.Remediation.Waiting) && !slices.ContainsFunc(records, reported)
	})
}
