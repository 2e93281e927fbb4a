package decision

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// Kind is what a step does.
type Kind string

// Kinds.
const (
	// Start writes InProgress; nothing is taken away before.
	Start Kind = "Start"
	// Evict asks for policy/v1 evictions of Pods.
	Evict Kind = "Evict"
	// Delete deletes Pods without grace.
	Delete Kind = "Delete"
	// Wait waits on the world until Until at the latest.
	Wait Kind = "Wait"
	// Finish writes Succeeded and AlreadyDrained.
	Finish Kind = "Finish"
	// LeaveAlone records the controllers whose pods are left on the node.
	LeaveAlone Kind = "LeaveAlone"
	// Cancel writes Cancelled.
	Cancel Kind = "Cancel"
	// Fail writes Failed.
	Fail Kind = "Fail"
	// Nothing is left to do.
	Nothing Kind = "Nothing"
)

// Reason is why a step was chosen.
type Reason string

// Reasons to cancel.
const (
	// FaultsCleared: every fault of the record is cleared.
	FaultsCleared Reason = "FaultsCleared"
	// QuarantineCancelled: a person released the node.
	QuarantineCancelled Reason = "QuarantineCancelled"
)

// Reasons to wait before a drain, or in the middle of it.
const (
	// NodeMissing: there is no such Node now.
	NodeMissing Reason = "NodeMissing"
	// SessionNotShown: the Node does not bear the records' session, not yet or
	// not any more; the records say which, once they are written.
	SessionNotShown Reason = "SessionNotShown"
	// SessionUnknown: the store cannot tell of all faults of the session.
	SessionUnknown Reason = "SessionUnknown"
	// NewerVersion: what is left of the drain is for a newer version to do; see
	// record.NeedsNewer.
	NewerVersion Reason = "NewerVersion"
	// ManuallyReleased: a person took away a mark of ours.
	ManuallyReleased Reason = "ManuallyReleased"
	// NodeSchedulable: the Node is neither cordoned nor tainted by the session.
	NodeSchedulable Reason = "NodeSchedulable"
)

// Reasons to wait for pods, the most telling one.
const (
	// BudgetBlocked: a disruption budget refuses an eviction.
	BudgetBlocked Reason = "BudgetBlocked"
	// SeveralBudgets: a pod has more than one disruption budget, which the eviction
	// API refuses whatever they allow.
	SeveralBudgets Reason = "SeveralBudgets"
	// EvictionErrored: an eviction failed for another reason.
	EvictionErrored Reason = "EvictionErrored"
	// PodsReturn: a controller puts its pods back on the node.
	PodsReturn Reason = "PodsReturn"
	// PodsTerminating: pods are on their way out.
	PodsTerminating Reason = "PodsTerminating"
	// AwaitingDeadline: pods are left until the delete deadline.
	AwaitingDeadline Reason = "AwaitingDeadline"
	// AwaitingCompletion: pods are left to complete.
	AwaitingCompletion Reason = "AwaitingCompletion"
	// NeverCompletes: pods are left to complete whose controller replaces each that
	// ends.
	NeverCompletes Reason = "NeverCompletes"
)

// Reasons of the other steps.
const (
	// PodsToMove: pods must go before the repair.
	PodsToMove Reason = "PodsToMove"
	// ImmediatePods: pods of mode Immediate are there.
	ImmediatePods Reason = "ImmediatePods"
	// DeadlinePassed: pods of mode DeleteAfterTimeout are there after the deadline.
	DeadlinePassed Reason = "DeadlinePassed"
	// PodsGone: no pod that must go is left.
	PodsGone Reason = "PodsGone"
	// DrainedBefore: the session was drained before this fault, and still is.
	DrainedBefore Reason = "DrainedBefore"
	// SkipAsked: the event asked not to drain.
	SkipAsked Reason = "SkipAsked"
	// NoSession: a record in quarantine names no session, which cannot be.
	NoSession Reason = "NoSession"
	// KeepingEmpty: the node is drained and not repaired yet.
	KeepingEmpty Reason = "KeepingEmpty"
	// PodsBack: pods that must go came to a drained node.
	PodsBack Reason = "PodsBack"
	// NoOpenWork: no record asks for a drain.
	NoOpenWork Reason = "NoOpenWork"
	// NoMarks: the session asks for neither cordon nor a taint that keeps pods
	// away; such a session is never drained.
	NoMarks Reason = "NoMarks"
)

// Update is a new eviction status of one record.
type Update struct {
	ID     string
	Status record.EvictionStatus
}

// Final says that the record's drain is over with this update.
func (u Update) Final() bool { return u.Status.Status.Final() }

// On returns status with the update, and the finish time if it is final.
func (u Update) On(status record.Status, now time.Time) record.Status {
	status.UserPodsEvictionStatus = u.Status
	if u.Final() && status.DrainFinishTimestamp == nil {
		at := now.UTC().Truncate(time.Microsecond)
		status.DrainFinishTimestamp = &at
	}
	return status
}

// Step is everything to do in one pass. Effects come first: Label, then Pods;
// Updates are written when they are done.
type Step struct {
	Kind Kind
	Why  Reason
	// Session is the session the step acts in; empty when it touches no Node.
	Session string
	// Label is the state to write on the Node; empty leaves it.
	Label nodemark.State
	// Pods are to be evicted or deleted.
	Pods []*corev1.Pod
	// Left is how many pods still must go.
	Left    int
	Updates []Update
	// Blocked is what somebody should know of a Wait: why pods do not leave.
	Blocked []Blocked
	// Lost are pods that a Finish leaves to the repair.
	Lost []string
	// Until is when to look again at the latest, for Wait.
	Until time.Time
}

// Blocked is one reason for which pods do not leave their node.
type Blocked struct {
	Why Reason
	// By names what keeps them: budgets, or the pods themselves.
	By []string
	// Overdue says that it has lasted for so long that somebody has to act.
	Overdue bool
}

// Updated is a record's status with the step's update on it; ok is false if the
// step leaves the record alone.
func (s Step) Updated(r record.Record, now time.Time) (status record.Status, ok bool) {
	for _, update := range s.Updates {
		if update.ID == r.ID {
			return update.On(r.Status, now), true
		}
	}
	return r.Status, false
}

// Reads says which facts are to be read from the API server itself, rather than from a
// cache. The records are read with the pods.
type Reads struct{ Node, Pods bool }

// Needs is what has to be read before a step is taken. What cannot be taken back needs
// the Node; a drain that ends needs its pods too.
func Needs(s Step) Reads {
	return Reads{
		Node: s.Kind == Evict || s.Kind == Delete || s.Kind == Finish,
		Pods: s.Kind == Finish,
	}
}

// EndsPass says that nothing more follows before the world changes.
func (s Step) EndsPass() bool { return s.Kind == Wait || s.Kind == Nothing }
