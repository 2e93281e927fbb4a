package record

import "cmp"

// formerNeedsHuman is the former name of OutcomeNeedsHuman, read until v1.0.
const formerNeedsHuman Outcome = "NeedsHuman"

// formerReasons are the former names of reasons of remediations, with the present ones:
// stored records have them. They are read until v1.0.
var formerReasons = map[string]string{
	"Lemon":          "RepeatOffender",
	"WaitPods":       "AwaitingPodRemoval",
	"WaitClaim":      "AwaitingClaim",
	"WaitLease":      "AwaitingLease",
	"WaitBrake":      "Paused",
	"WaitSymptoms":   "AwaitingSymptomRecovery",
	"WaitBackoff":    "BackingOff",
	"WaitReady":      "AwaitingNodeReady",
	"WaitHuman":      "AwaitingManualIntervention",
	"Succeed":        "Succeeded",
	"Release":        "ReservationReleased",
	"Escalate":       "Escalated",
	"Forgive":        "Forgiven",
	"Cancel":         "Cancelled",
	"HumanAction":    "ManualActionRequired",
	"AttemptsUsedUp": "AttemptsExhausted",
	"SlotClosed":     "EquivalenceGroupClosed",
}

// PresentReason is the present name of a reason of a remediation.
func PresentReason(reason string) string { return cmp.Or(formerReasons[reason], reason) }

// renameFormer gives a remediation that was decoded the present names, so that nothing
// else compares former ones.
func (r *Remediation) renameFormer() {
	if r == nil {
		return
	}
	if r.Outcome == formerNeedsHuman {
		r.Outcome = OutcomeNeedsHuman
	}
	r.Reason = PresentReason(r.Reason)
	for i := range r.Attempts {
		r.Attempts[i].Reason = PresentReason(r.Attempts[i].Reason)
	}
	if r.Waiting != nil {
		r.Waiting.Reason = PresentReason(r.Waiting.Reason)
	}
}
