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

// alike says whether two faults differ in their codes at most.
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

// Observation is what an evaluation told about an object.
type Observation string

// Sights.
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

// Reason says why a decision was made.
type Reason string

// Reasons of a decision.
const (
	NoFault       Reason = "no-fault"
	Began         Reason = "began"
	Stays         Reason = "stays"
	Extended      Reason = "extended" // codes of the match were not reported yet
	Moved         Reason = "moved"
	Redefined     Reason = "redefined"
	Ended         Reason = "ended"
	ObjectGone    Reason = "object-gone"
	PolicyDropped Reason = "policy-dropped"
	NotKnown      Reason = "not-known"
	NodeNotKnown  Reason = "node-not-known"
	OnHold        Reason = "on-hold" // such an event was rejected a short while ago
)

// Decision is what is to be reported: the end of a fault, the beginning of one,
// both, or nothing.
type Decision struct {
	Reason Reason
	// Recover says that the open fault has ended.
	Recover bool
	// Report says that the given fault begins, behind the recovery; of an Extended one
	// the codes that were not reported.
	Report bool
}

// Hold is the decision while an event like those that follow from it was rejected a short
// while ago. What an event of another kind follows from is not held back.
func (d Decision) Hold() Decision {
	switch d.Reason {
	case Began, Extended, Ended, ObjectGone:
		return Decision{Reason: OnHold}
	case NoFault, Stays, Moved, Redefined, PolicyDropped, NotKnown, NodeNotKnown, OnHold:
	}
	return d
}

// Decide compares the open fault (nil: none) with what is seen now. fault is
// what a match would report; its Node is empty when the node is not known, which
// holds back a new fault but neither keeps an old one from ending nor moves it.
func Decide(open *Fault, seen Observation, fault Fault) Decision {
	switch seen {
	case Unknown:
		return Decision{Reason: NotKnown}
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
		return Decision{Reason: NodeNotKnown}
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
