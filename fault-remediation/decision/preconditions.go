package decision

import (
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/healthrule"
)

// A fault without a boot id that was generated this long before a repair's
// signal, or after its end, may be a symptom of the repair.
const (
	symptomsBefore = 2 * time.Minute
	symptomsAfter  = 5 * time.Minute
)

// claimedFor is how long a Node that another repair object claims is waited for
// before a person is asked.
const claimedFor = time.Hour

// end is why a slot has no further object, none if it has one: what a person is shown,
// and the reason to go on to the next action, empty if none can follow.
type end struct {
	why                Reason
	message, escalates string
}

// exhausted returns why the slot has no further object.
func (d decision) exhausted(next job, mine []record.Record, s slot) end {
	a := next.repair
	for _, r := range mine {
		other, known := d.repairs.Of(record.RepairAction(r))
		if !known || record.Remediated(r.Status) != "false" || r.Status.Remediation == nil {
			continue
		}
		why := Reason(r.Status.Remediation.Reason)
		switch {
		case other.Rank > a.Rank && d.repairs.Covers(other.Name, a.Name):
			return end{StrongerFailed, fmt.Sprintf("%s of record %s requires manual intervention (%s), %s cannot resolve it", other.Name, r.ID, why, a.Name), ""}
		case other.For(r).Group == a.Group && why != AttemptsUsedUp && why != SignalRefused && why != StrongerFailed:
			return end{SlotClosed, fmt.Sprintf("%s of record %s requires manual intervention: %s", other.Name, r.ID, r.Status.Remediation.Message), ""}
		}
	}
	switch {
	case s.misconfigured:
		return end{ChainMisconfigured, fmt.Sprintf("%s has no result for the node: %s. Correct the chain or its templates, and repair the node manually", a.Name, s.last), ""}
	case s.unknown:
		return end{ChainUnknown, fmt.Sprintf("the effect of %s on the node is unknown: %s. Find out whether the node was repaired, then repair it or release it manually", a.Name, s.last), ""}
	case s.escalated:
		lost := fmt.Sprintf("%s is not retried: %s", a.Name, s.last)
		return end{ChainEscalated, lost + ". Repair the node manually", lost}
	case len(s.used) >= a.Attempts.Max:
		return end{
			AttemptsUsedUp,
			fmt.Sprintf("%s failed or did not last: %d remediations of group %s within %s on this machine: %s. Repair the node manually", a.Name, len(s.used), a.Group, a.Attempts.Window, s.history()),
			fmt.Sprintf("%s has no attempt left: %s", a.Name, s.history()),
		}
	case d.v.Node.Claim != "" && !d.now.Before(d.waitedSince(next.record, WaitClaim, claimedFor).Add(claimedFor)):
		return end{ClaimStuck, fmt.Sprintf("maintenance object %s has claimed the Node for %s. Find out why it is pending, or delete it, then repair the node manually", d.v.Node.Claim, claimedFor), ""}
	case s.away != nil && d.neverReady(next, *s.away):
		lost := d.lostSince(*s.away)
		return end{NeverReady, lost + ". Another signal could interrupt its boot: check its console, then repair the node manually", lost}
	case s.refused >= a.Attempts.Max:
		see := "Check the provider plugin"
		if a.Chain != "" {
			see = "Correct RepairChain " + a.Chain
		}
		return end{SignalRefused, fmt.Sprintf("%s was refused %d times in a row, most recently: %s. %s, then repair the node manually", a.Name, s.refused, s.last, see), ""}
	}
	return end{}
}

// precondition returns what has to be waited for before an object is created.
func (d decision) precondition(next job, s slot) (Step, bool) {
	n := d.v.Node
	switch {
	case n.Claim != "":
		return Step{Reason: WaitClaim, After: soon, Message: "maintenance object " + n.Claim + " claims the Node", Until: d.waitedSince(next.record, WaitClaim, claimedFor).Add(claimedFor)}, true
	case len(d.v.PodsBack) > 0:
		return Step{Reason: WaitPods, After: soon, Message: "evicted Pods are on the Node again: " + listed(d.v.PodsBack)}, true
	case s.away != nil && !d.watching():
		return d.waitReady(*s.away), true
	}
	if rest := s.pause - d.elapsed(s.failedAt, s.pause); rest > 0 {
		return d.waitUntil(WaitBackoff, d.now.Add(rest), "after a failed remediation: "+s.last), true
	}
	if s.away != nil {
		return d.waitReady(*s.away), true
	}
	if until := d.symptomUntil(next.record); d.now.Before(until) {
		return d.waitUntil(WaitSymptoms, until, "the fault can be a symptom of the last remediation"), true
	}
	return Step{}, false
}

// symptomUntil is how long a fault without a boot id waits for its recovery,
// because it was generated around another fault's repair.
func (d decision) symptomUntil(r record.Record) time.Time {
	var until time.Time
	if r.Event.BootID() != "" {
		return until
	}
	at := r.Event.GeneratedTimestamp
	for _, x := range attempts(d.v.Records) {
		a := x.Attempt
		if x.Record.ID == r.ID || a.FinishedAt == nil || !a.SignalSent || a.Machine != fault.Machine(d.v.Node.Identity) {
			continue
		}
		ended := d.ended(a)
		end := ended.Add(symptomsAfter)
		if d.elapsed(ended, symptomsAfter) < symptomsAfter && !at.Before(a.SubmittedAt.Add(-symptomsBefore)) && !at.After(end) {
			until = latest(until, end)
		}
	}
	return until
}

// ended is when a finished repair's effects did: a machine that came back after
// the repair's time was up did so when its Node became Ready.
func (d decision) ended(a record.Attempt) time.Time {
	if n := d.v.Node; a.State != string(healthrule.Healthy) && n.Ready && n.ReadySince.After(*a.FinishedAt) && d.bootedSince(a) {
		return n.ReadySince
	}
	return *a.FinishedAt
}
