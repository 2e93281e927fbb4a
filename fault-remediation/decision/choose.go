package decision

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/action"
	"github.com/nvidia/nvsentinel/internal/healthrule"
)

// choose decides what to do while no object is under way. A reserved name is
// looked through: it neither counts as an attempt nor stands in the way.
func (d decision) choose(reserved *Ref) Step {
	if s, ok := d.leftovers(); ok {
		return s
	}
	open := only(d.v.Records, record.Open)
	if len(open) == 0 {
		return Step{Reason: Nothing, Message: "no fault is open"}
	}
	mine, s, ok := d.session(open)
	if !ok {
		return s
	}
	if s, ok := d.settle(mine); ok {
		return s
	}
	next, s, ok := d.candidate(mine)
	if !ok {
		return s
	}
	return d.reserve(next, mine, reserved)
}

// leftovers cancels traces of faults that are over and have no object.
func (d decision) leftovers() (Step, bool) {
	e := d.edit()
	for _, r := range d.v.Records {
		if r.Status.Remediation != nil && outcome(r) == "" && !record.Open(r) && !unfinished(r) {
			e.cancelIfOver(r)
		}
	}
	return e.step(Cancel, "the faults have ended"), len(e.writes) > 0
}

// session finds the open records of the Node's session, if the Node is the
// machine they are about, is marked, and all of them are drained.
func (d decision) session(open []record.Record) ([]record.Record, Step, bool) {
	n := d.v.Node
	wait := func(why Reason, message string) ([]record.Record, Step, bool) {
		return nil, Step{Reason: why, Message: message, After: soon}, false
	}
	drain := func(message string) ([]record.Record, Step, bool) {
		// The drainer's status update enqueues the node; asking again is a safety net.
		return nil, Step{Reason: WaitDrain, Message: message, After: watched}, false
	}
	switch {
	case n.Presence == Unread && !needsNode(d.v.Records):
		return drain("no record is drained")
	case n.Presence == Unread:
		return wait(WaitNode, "the Node could not be read")
	case n.Presence == Absent:
		return wait(NodeGone, "the Node is deleted")
	case n.Session == "":
		return wait(WaitSession, "the Node has no quarantine session yet")
	case n.Unknown:
		return wait(WaitUnknown, "the store does not show the state of all faults of the Node's quarantine session")
	}
	mine := only(open, func(r record.Record) bool { return r.Status.Session == n.Session })
	if len(mine) == 0 {
		return wait(WaitSession, "no open record belongs to the Node's quarantine session "+n.Session)
	}
	for _, r := range mine {
		if same := fault.Compare(fault.Of(r), n.Identity); same != fault.SameMachine {
			return wait(WaitMachine, fmt.Sprintf("record %s and the Node: %s", r.ID, same))
		}
	}
	if !n.Marked {
		return wait(WaitMarks, "the Node is schedulable")
	}
	for _, r := range mine {
		if !record.DrainSucceeded(r) {
			return drain(fmt.Sprintf("record %s is not drained: %q", r.ID, r.Status.UserPodsEvictionStatus.Status))
		}
	}
	return mine, Step{}, true
}

// settle closes what needs no object: a person's actions, and faults of a boot
// that is over.
func (d decision) settle(mine []record.Record) (Step, bool) {
	e := d.edit()
	for _, r := range only(mine, unremediated) {
		if name := record.RepairAction(r); d.repairs.NeedsHuman(name) {
			e.human(r, HumanAction, action.NextStep(name, d.v.Node.Name))
		}
	}
	if len(e.writes) > 0 {
		return e.step(HumanAction, "an action requires manual intervention"), true
	}
	if s, ok := d.unrecovered(mine); ok {
		return s, true
	}
	if d.unverified() {
		return Step{}, false
	}
	for _, r := range only(mine, unremediated) {
		if by, cured := d.pastBoot(r); cured {
			e.remediated(r, record.OutcomeCovered, by, CoveredByReboot, "the fault belongs to an earlier boot")
		}
	}
	return e.step(CoveredByReboot, "faults of an earlier boot"), len(e.writes) > 0
}

// unverified reports whether the session's newest repair was a chain that did not succeed:
// that the machine booted meanwhile does not prove the chain's success.
func (d decision) unverified() bool {
	last := newest(d.v.Records, func(a record.Attempt) bool { return a.Session == d.v.Node.Session && a.SignalSent && a.UID != "" })
	return last != nil && last.Chain != "" && last.State != string(healthrule.Healthy)
}

// pastBoot reports whether a fault is over because its boot is, and the record
// whose repair ended that boot; the fault's own where none is known. An action
// that not every reboot cures needs a repair that covers it.
func (d decision) pastBoot(r record.Record) (by string, cured bool) {
	name := r.Event.EffectiveAction()
	cured = d.repairs.CuredByReboot(name)
	if r.Event.BootID() == "" {
		return d.bootedLate(r, cured)
	}
	if !d.v.Boots.Past(r) {
		return "", false
	}
	for _, x := range attempts(d.v.Records) {
		if x.Attempt.ReplacedBootID == r.Event.BootID() && (cured || d.repairs.Covers(x.Attempt.Action, name)) {
			return x.Record.ID, true
		}
	}
	return r.ID, cured
}

// bootedLate reports whether a fault without a boot id is older than a repair that
// ended without success, and whose machine reports another boot since: it came
// back after the repair's time was up.
func (d decision) bootedLate(r record.Record, cured bool) (by string, late bool) {
	if !cured {
		return "", false
	}
	for _, x := range attempts(d.v.Records) {
		a := x.Attempt
		if failed(a) && a.Session == r.Status.Session && (x.Record.ID == r.ID || r.Event.GeneratedTimestamp.Before(*a.FinishedAt)) && d.bootedSince(a) {
			return x.Record.ID, true
		}
	}
	return "", false
}

// job is a fault and the repair it asks for.
type job struct {
	record record.Record
	repair action.Action
}

// candidate is the strongest repair that may go on; ok is false when there is
// none, with the step that is left.
func (d decision) candidate(mine []record.Record) (next job, none Step, ok bool) {
	var jobs []job
	for _, r := range only(mine, unremediated) {
		if repair, known := d.repairs.Of(record.RepairAction(r)); known {
			jobs = append(jobs, job{r, repair.For(r)})
		}
	}
	human := slices.ContainsFunc(mine, func(r record.Record) bool { return d.repairs.NeedsHuman(record.RepairAction(r)) })
	if human {
		weaker := only(jobs, func(j job) bool { return j.repair.Rank < action.RankReplace })
		if len(weaker) == 0 && len(jobs) > 0 {
			return job{}, Step{Reason: WaitHuman, Waits: jobs[0].record.ID, Message: fmt.Sprintf("%s is pending: a fault of this node requires manual intervention first", jobs[0].repair.Name)}, false
		}
		jobs = weaker
	}
	if len(jobs) == 0 {
		return job{}, d.recovery(mine), false
	}
	return slices.MinFunc(jobs, func(a, b job) int { // of equals one with a trace: the objects of a slot stay in one record
		return cmp.Or(cmp.Compare(b.repair.Rank, a.repair.Rank), cmp.Compare(min(1, len(record.Attempts(b.record))), min(1, len(record.Attempts(a.record)))), cmp.Compare(a.record.Append, b.record.Append))
	}), Step{}, true
}

// recovery waits for the recovery of repaired faults and asks a person when it
// does not come; the session is never released from here.
func (d decision) recovery(mine []record.Record) Step {
	e := d.edit()
	var next time.Duration
	for _, r := range mine {
		at := r.Status.LastRemediationTimestamp
		if record.Remediated(r.Status) != "true" || at == nil || outcome(r) == record.OutcomeNeedsHuman {
			continue
		}
		left := d.policy.RecoveryWithin - d.elapsed(*at, d.policy.RecoveryWithin)
		if left > 0 {
			if next == 0 || left < next {
				next = left
			}
			continue
		}
		message := fmt.Sprintf("manual intervention required: no recovery reported within %s after the remediation succeeded. Check the node and its monitor, then release the node manually", d.policy.RecoveryWithin)
		rem := e.of(r).Remediation
		rem.Outcome, rem.Reason, rem.Message = record.OutcomeNeedsHuman, string(NoRecovery), message
	}
	switch {
	case len(e.writes) > 0:
		return e.step(NoRecovery, "manual intervention required: no recovery reported")
	case next > 0:
		return Step{Reason: WaitRecovery, After: next, Message: "remediation succeeded, the recovery is not reported yet"}
	case slices.ContainsFunc(mine, d.unrepaired):
		return Step{Reason: NoRepair, Message: "no open fault requires a remediation, waiting for the recovery"}
	}
	return Step{Reason: Nothing, Message: "no open fault requires a remediation"}
}

// reserve records the name of the slot's next object, if the slot is open, has
// an attempt left, and nothing has to be waited for. Without an attempt left
// the fault goes to the next action, or to a person.
func (d decision) reserve(next job, mine []record.Record, reserved *Ref) Step {
	if message, kept := d.requiresRelease(); kept {
		e := d.edit()
		e.human(next.record, RepeatOffender, message)
		return e.step(RepeatOffender, message)
	}
	s := d.slot(next, reserved)
	if no := d.exhausted(next, mine, s); no.why != "" {
		e := d.edit()
		if to := next.repair.Escalate; to != "" && no.escalates != "" {
			return e.escalate(next.record, to, no.escalates)
		}
		e.human(next.record, no.why, no.message)
		return e.step(no.why, no.message)
	}
	if wait, ok := d.precondition(next, s); ok {
		wait.Waits = next.record.ID
		return wait
	}
	return d.reserveObject(next, s)
}

func (d decision) reserveObject(next job, s slot) Step {
	n, a := d.v.Node, next.repair
	at := record.Attempt{
		Ordinal: s.ordinal, Group: a.Group, Action: a.Name, Session: n.Session, Machine: s.machine,
		Template: a.Template, Digest: a.Digest, Kind: a.GVK.Kind, Namespace: a.Namespace,
		Name:        action.ObjectName(n.Name, s.machine, n.Session, a.Group, s.ordinal),
		SubmittedAt: d.now.UTC(), State: string(healthrule.Unknown), Reason: "Reserved",
		PriorBootID: n.Identity.BootID, SignalSent: true, Chain: a.Chain,
	}
	e := d.edit()
	rem := e.of(next.record).Remediation
	rem.Attempts = append(rem.Attempts, at)
	return e.step(Reserved, fmt.Sprintf("reserving %s %s, attempt %d of %d", at.Kind, at.Name, len(s.used)+1, a.Attempts.Max))
}

func unremediated(r record.Record) bool { return r.Status.FaultRemediated == nil }

func only[T any](list []T, keep func(T) bool) []T {
	var out []T
	for _, x := range list {
		if keep(x) {
			out = append(out, x)
		}
	}
	return out
}
