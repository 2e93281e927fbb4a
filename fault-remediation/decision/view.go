// Package decision decides the next step of a node's repair from facts that were
// read before: records, the Node, the repair object, pods. It is pure; its
// steps carry the record changes that the caller only has to write.
package decision

import (
	"cmp"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/healthrule"
	"github.com/nvidia/nvsentinel/internal/kubelet"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/remediation"
)

// Presence is what reading an object showed. A failed read shows nothing.
type Presence = remediation.Presence

// Presences; the zero value is Unread.
const (
	Unread  = remediation.Unread
	Present = remediation.Present
	Absent  = remediation.Absent
)

// Node are the facts of the live Node.
type Node struct {
	Name     string
	Presence Presence
	// Identity is the machine behind the name, with the boot it reports.
	Identity record.NodeIdentity
	// Session is the quarantine session the Node bears, or empty.
	Session string
	// Unknown is true if the store does not know all faults of the session.
	Unknown bool
	// Marked is true if nothing new is scheduled here: the Node is cordoned, or has a
	// NoSchedule or NoExecute taint of the session.
	Marked bool
	// Ready is the Node's condition; one that is not known is not Ready, and one that is
	// True may be from before the machine died. ReadySince is its last change, zero when
	// unknown.
	Ready      bool
	ReadySince time.Time
	// Kubelet is whether the Node's kubelet is alive, where Needs asks for it; else unknown.
	Kubelet kubelet.Liveness
	// Claim is the uid of the repair object that claims the Node, or empty.
	Claim string
	// RepeatOffender is its repeat offender mark.
	RepeatOffender RepeatOffenderMark
}

// Object are the facts of the repair object of the current attempt.
type Object struct {
	Presence Presence
	// Unread is why it could not be read, or may not be created.
	Unread Reason
	UID    string
	// CreatedAt is the API server's time of creation.
	CreatedAt time.Time
	Session   string
	Group     string
	Ordinal   int
	// Deleting is true if the object is deleted and a finalizer keeps it.
	Deleting bool
	// Health is the verdict of the action's health rule.
	Health healthrule.Result
	// Unsent is true if no signal was sent and none will be.
	Unsent bool
	// SessionOver is true if the object was refused because its session is over.
	SessionOver bool
	// Escalated is true if a step of a chain failed so that the repair is not to be tried again.
	Escalated bool
	// Misconfigured is true if a chain or one of its templates is wrong, so that the run
	// shows nothing about the node.
	Misconfigured bool
	// OutcomeUnknown is true if nobody knows what a step of a chain did to the node.
	OutcomeUnknown bool
	// Steps are the trace of a run of a chain.
	Steps []record.RepairStep
	// PriorBoot and ObservedBoot are the boots before and after, where the object has them.
	PriorBoot    string
	ObservedBoot string
	// Refused is the API server's answer to its creation, if it can never be created.
	Refused string
}

// View is everything that is known about a node at one moment.
type View struct {
	Node Node
	// Records are the node's open records and all with a repair trace.
	Records []record.Record
	// Object belongs to the attempt that Current names.
	Object Object
	// PodsBack are pods that had to go and are on the node.
	PodsBack []string
	// Boots knows which boots are past.
	Boots fault.Boots
}

// Policy bounds what actions do not: how long a recovery is waited for.
type Policy struct {
	// RecoveryWithin is how long after a healthy repair the fault's recovery is
	// waited for before a person is asked.
	RecoveryWithin time.Duration
	// UnrepairedAfter is how long a fault is waited for whose repair does not begin, because
	// it asks for none or because its object cannot be created, before a person is asked; 0
	// is for ever.
	UnrepairedAfter time.Duration
	// RepeatOffender decides when a machine is a repeat offender.
	RepeatOffender RepeatOffenderPolicy
}

// DefaultRecoveryWithin is the default of Policy.RecoveryWithin.
const DefaultRecoveryWithin = 30 * time.Minute

// DefaultUnrepairedAfter is the default of Policy.UnrepairedAfter: longer than what
// providers and people usually take to do it themselves.
const DefaultUnrepairedAfter = 24 * time.Hour

// Write is one status change; it applies to Revision only.
type Write struct {
	ID       string
	Revision int64
	Status   record.Status
	ExpireAt *time.Time
}

// Creation is an object to create.
type Creation struct {
	Record  record.Record
	Attempt record.Attempt
}

// Step is one thing to do. Writes are applied together, then the facts are read
// again; Create creates, then the facts are read again; else After is when to
// ask again (0: when something changes).
type Step struct {
	Reason  Reason
	Message string
	Writes  []Write
	Create  *Creation
	After   time.Duration
	// Label is the state label the Node should bear; empty leaves it alone.
	Label nodemark.State
	// RepeatOffender is the repeat offender mark the Node should bear; nil leaves it alone.
	RepeatOffender *RepeatOffenderMark
	// Waits is the record that waits, until when at the latest; zero is for the
	// world alone to end.
	Waits string
	Until time.Time
}

// OnlyWaits reports whether a step only waits.
func (s Step) OnlyWaits() bool { return len(s.Writes) == 0 && s.Create == nil }

// Ref is an attempt within its record.
type Ref struct {
	Record  record.Record
	Index   int
	Attempt record.Attempt
}

// Current is the attempt that is not finished, of whatever session: a node has
// one repair at a time. With several, the earliest goes first.
func Current(records []record.Record) (Ref, bool) {
	open := only(attempts(records), func(x Ref) bool { return x.Attempt.FinishedAt == nil })
	if len(open) == 0 {
		return Ref{}, false
	}
	return slices.MinFunc(open, func(a, b Ref) int {
		return cmp.Or(a.Attempt.SubmittedAt.Compare(b.Attempt.SubmittedAt), cmp.Compare(a.Record.Append, b.Record.Append))
	}), true
}

// Unsettled reports whether a record may still need a step: the backlog after a
// start.
func Unsettled(r record.Record) bool {
	rem := r.Status.Remediation
	switch {
	case record.Open(r):
		return record.DrainSucceeded(r) || rem != nil
	case rem == nil:
		return false
	}
	return rem.Outcome == "" || unfinished(r)
}

// attempts are those of all records, in their order.
func attempts(records []record.Record) (out []Ref) {
	for _, r := range records {
		for i, a := range record.Attempts(r) {
			out = append(out, Ref{r, i, a})
		}
	}
	return out
}

// newest is the last begun of the attempts that are meant; nil when there is none.
func newest(records []record.Record, meant func(record.Attempt) bool) *record.Attempt {
	list := only(attempts(records), func(x Ref) bool { return meant(x.Attempt) })
	if len(list) == 0 {
		return nil
	}
	last := slices.MaxFunc(list, func(a, b Ref) int { return a.Attempt.SubmittedAt.Compare(b.Attempt.SubmittedAt) })
	return &last.Attempt
}

func unfinished(r record.Record) bool {
	return slices.ContainsFunc(record.Attempts(r), func(a record.Attempt) bool { return a.FinishedAt == nil })
}

// failed reports whether something may have been sent for an attempt that ended without success.
func failed(a record.Attempt) bool {
	return a.UID != "" && a.SignalSent && a.FinishedAt != nil && a.State != string(healthrule.Healthy)
}

func outcome(r record.Record) record.Outcome {
	if r.Status.Remediation == nil {
		return ""
	}
	return r.Status.Remediation.Outcome
}
