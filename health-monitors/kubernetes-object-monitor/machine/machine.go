// Package machine is the two-state machine of every (policy, object): a match
// opens a fault, its end recovers it. It decides what is to be reported, keeps
// what is open and what waits to be acknowledged, and reads no clock and does no
// I/O.
package machine

import (
	"slices"

	"github.com/nvidia/nvsentinel/data-models/extra"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// Key names one two-state machine.
type Key struct {
	Policy string `json:"policy"`
	// Type is the object's kind, "v1/Node" or "events.k8s.io/v1/Event".
	Type string `json:"type"`
	// Object is "name" or "namespace/name".
	Object string `json:"object"`
}

// Fault is what was reported of a match: its identity, which the recovery
// repeats, whatever has become of the policy.
type Fault struct {
	Node           string `json:"node"`
	ComponentClass string `json:"class"`
	// Codes are the error codes that were reported; empty is a fault without one.
	Codes    []string        `json:"codes,omitempty"`
	Strategy record.Strategy `json:"strategy"`
	// Extra is what a newer version has written of the fault.
	Extra *extra.Extra `json:"-"`
}

func (f Fault) equal(o Fault) bool { return f.alike(o) && slices.Equal(f.Codes, o.Codes) }

// alike reports whether two faults differ in their codes at most.
func (f Fault) alike(o Fault) bool {
	return f.Node == o.Node && f.ComponentClass == o.ComponentClass && f.Strategy == o.Strategy
}

// unreported are the codes of a match that are missing in the open fault; none, if they
// are not all that differs.
func (f Fault) unreported(match Fault) []string {
	has := func(code string) bool { return slices.Contains(match.Codes, code) }
	if len(f.Codes) == 0 || !f.alike(match) || !hasAll(f.Codes, has) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(match.Codes), func(code string) bool { return slices.Contains(f.Codes, code) })
}

func hasAll(codes []string, has func(string) bool) bool {
	return !slices.ContainsFunc(codes, func(code string) bool { return !has(code) })
}

// Observation is what an evaluation found about an object.
type Observation string

// Observations.
const (
	// Matched: the predicate holds.
	Matched Observation = "matched"
	// Unmatched: the predicate does not hold.
	Unmatched Observation = "unmatched"
	// Gone: the object certainly does not exist.
	Gone Observation = "gone"
	// Dropped: the policy does not exist or is disabled.
	Dropped Observation = "dropped"
	// Unknown: the evaluation failed; nothing follows.
	Unknown Observation = "unknown"
)

// Reason is why a decision was made.
type Reason string

// Reasons of a decision.
const (
	// NoFault: the predicate does not match the object and no fault of it is open, so nothing is reported. Action:
	// none.
	NoFault Reason = "no-fault"
	// Began: the predicate matches the object, so a fault of its node is reported. Action: none. `nvsentinel why
	// <node>` shows the fault and its repair.
	Began Reason = "began"
	// Stays: the predicate still matches and its fault is open, so nothing is reported. Action: none.
	Stays Reason = "unchanged"
	// Extended: the policy has error codes that were not reported for the open fault, so these are reported and
	// the others stay open. Action: none.
	Extended Reason = "extended"
	// Moved: the object belongs to another node now, so a recovery is reported for the old node and a fault for
	// the new one. Action: none.
	Moved Reason = "moved"
	// Redefined: the component class, the error codes or the strategy of the policy changed, so the open fault
	// recovers and is reported again. Action: none.
	Redefined Reason = "redefined"
	// Ended: the predicate does not match the object any more, so the recovery is reported. Action: none.
	Ended Reason = "ended"
	// ObjectGone: the object was deleted, so the recovery of its fault is reported. Action: none.
	ObjectGone Reason = "object-gone"
	// PolicyDropped: the policy was removed, disabled or limited to another namespace, so the recovery of its
	// fault is reported. Action: none.
	PolicyDropped Reason = "policy-dropped"
	// EvaluationFailed: an expression of the policy could not be evaluated, so nothing is reported and an open fault stays
	// open. Action: correct the expression that the log names. `k8s_object_monitor_policy_evaluation_errors_total`
	// counts such errors by policy.
	EvaluationFailed Reason = "evaluation-failed"
	// NodeUnknown: the predicate matches and the node of the object is not known, so no fault is reported and the
	// object is evaluated again. Action: correct `expression` in `[policies.nodeAssociation]` if the object
	// belongs to a node.
	NodeUnknown Reason = "node-unknown"
	// OnHold: the platform connector rejected such a health event less than ten minutes ago, so it is not sent
	// again yet. Action: read the Event `EventsRejected` of the Node of the monitor. Then add the name of the
	// policy to `checks` of the monitor in `[[publishers.agent]]`, or rename the policy.
	OnHold Reason = "on-hold"
)

// Decision is what is to be reported: the end of a fault, the beginning of one,
// both, or nothing.
type Decision struct {
	Reason Reason
	// Recover means that the open fault has ended.
	Recover bool
	// Report means that the given fault begins, after the recovery; of an Extended one, the
	// codes that were not reported.
	Report bool
}

// Hold is the decision while an event like those that follow from it was rejected a short
// while ago. What an event of another kind follows from is not held back.
func (d Decision) Hold() Decision {
	switch d.Reason {
	case Began, Extended, Ended, ObjectGone:
		return Decision{Reason: OnHold}
	case NoFault, Stays, Moved, Redefined, PolicyDropped, EvaluationFailed, NodeUnknown, OnHold:
	}
	return d
}

// Decide compares the open fault (nil: none) with what is seen now. fault is
// what a match would report; its Node is empty when the node is not known, which
// holds back a new fault but neither keeps an old one from ending nor moves it.
func Decide(open *Fault, seen Observation, fault Fault) Decision {
	switch seen {
	case Unknown:
		return Decision{Reason: EvaluationFailed}
	case Matched:
		return decideMatched(open, fault)
	case Unmatched, Gone, Dropped:
	}
	if open == nil {
		return Decision{Reason: NoFault}
	}
	reasons := map[Observation]Reason{Unmatched: Ended, Gone: ObjectGone, Dropped: PolicyDropped}
	return Decision{Reason: reasons[seen], Recover: true}
}

func decideMatched(open *Fault, fault Fault) Decision {
	switch {
	case fault.Node == "" && open == nil:
		return Decision{Reason: NodeUnknown}
	case open == nil:
		return Decision{Reason: Began, Report: true}
	case fault.Node == "", open.equal(fault):
		return Decision{Reason: Stays}
	case len(open.unreported(fault)) > 0:
		return Decision{Reason: Extended, Report: true}
	case open.Node != fault.Node:
		return Decision{Reason: Moved, Recover: true, Report: true}
	}
	return Decision{Reason: Redefined, Recover: true, Report: true}
}
