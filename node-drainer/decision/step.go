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
	// FaultsCleared: every fault of the record is cleared, so its drain is cancelled. Action: none.
	FaultsCleared Reason = "FaultsCleared"
	// QuarantineCancelled: the quarantine session was cancelled, for example by a release of the node, so its drain
	// is cancelled. Action: none.
	QuarantineCancelled Reason = "QuarantineCancelled"
)

// Reasons to wait before a drain, or in the middle of it.
const (
	// NodeMissing: the Node object does not exist, so the drain waits. Action: none if you removed the machine.
	// Otherwise start it so that its kubelet registers the Node again.
	NodeMissing Reason = "NodeNotFound"
	// SessionNotShown: the Node does not show the session of the records, not yet or no longer. The drain waits until
	// fault-quarantine marks the Node or ends the session. Action: none if it ends within a minute. Otherwise check
	// fault-quarantine with `nvsentinel status`.
	SessionNotShown Reason = "AwaitingSession"
	// SessionUnknown: the store does not contain all faults of the session, so nothing is drained. Action: if the
	// records do not return within minutes, inspect the node and run `nvsentinel release <node>`. See the page Back
	// up and restore.
	SessionUnknown Reason = "SessionUnknown"
	// NewerVersion: only a newer version of node-drainer can drain for a record of the node. Other faults of the node
	// are drained, with the Event NewerVersionRequired. Action: install the newer version again. If you cannot, inspect the
	// node and run `nvsentinel release <node>`. See the page Upgrade.
	NewerVersion Reason = "NewerVersionRequired"
	// ManuallyReleased: the Node shows that it was released, so no further pod is evicted until fault-quarantine ends
	// the session. Action: none.
	ManuallyReleased Reason = "ManuallyReleased"
	// NodeSchedulable: the Node is neither cordoned nor tainted by the session, so the drain waits until
	// fault-quarantine restores the marks. Action: none if it happens once. If it repeats, stop the program that the
	// Event MarksRestored names.
	NodeSchedulable Reason = "NodeSchedulable"
)

// Reasons to wait for pods, the most informative one.
const (
	// BudgetBlocked: a PodDisruptionBudget refuses an eviction. node-drainer retries at least every minute, and soon
	// after the budget allows it. Action: increase the budget, or delete the pod yourself. The Event DrainBlocked
	// names the budget.
	BudgetBlocked Reason = "DisruptionBudgetBlocked"
	// SeveralBudgets: a pod has several PodDisruptionBudgets, and the eviction API rejects such pods. node-drainer
	// retries. Action: remove all but one of the budgets that the Event DrainBlocked names, or delete the pod
	// yourself.
	SeveralBudgets Reason = "MultipleDisruptionBudgets"
	// EvictionErrored: an eviction failed for another reason than a budget, for example by an admission webhook.
	// node-drainer retries. Action: none if it ends by itself. Otherwise correct the cause in the drain message of
	// the record (`nvsentinel why <node>`).
	EvictionErrored Reason = "EvictionFailed"
	// PodsReturn: a controller starts its pods on the node again after each eviction. After 3 evictions node-drainer
	// leaves such a pod on the node unless it may be a workload. Action: none if the Event PodsLeftAlone follows.
	// Otherwise stop the controller, or set its kind to `LeaveAlone` in `ownerKinds`.
	PodsReturn Reason = "PodsRecreated"
	// PodsTerminating: pods are terminating, and the drain waits for them. Action: none. If a finalizer keeps a pod,
	// remove it.
	PodsTerminating Reason = "PodsTerminating"
	// AwaitingDeadline: pods of the mode DeleteAfterTimeout run until `deleteAfterTimeoutMinutes` after the fault.
	// Then they are deleted. Action: none.
	AwaitingDeadline Reason = "AwaitingDeadline"
	// AwaitingCompletion: pods of the mode AllowCompletion run until they complete, without a limit. Action: none at
	// first. To drain the node sooner, end the pods, or set another mode in `userNamespaces` or `ownerKinds`.
	AwaitingCompletion Reason = "AwaitingCompletion"
	// NeverCompletes: pods may run until they complete, but their controller replaces each one that ends, so the
	// drain has no end. Action: delete or scale down the pods, or set another mode for their kind in `ownerKinds` or
	// their namespace in `userNamespaces`.
	NeverCompletes Reason = "NeverCompletes"
)

// Reasons of the other steps.
const (
	// PodsToMove: pods must leave the node before the remediation, so the drain starts. Action: none.
	PodsToMove Reason = "PodsToEvict"
	// ImmediatePods: pods of the mode Immediate are on the node, so node-drainer evicts them. Action: none.
	ImmediatePods Reason = "ImmediatePods"
	// DeadlinePassed: pods of the mode DeleteAfterTimeout are on the node after their deadline, so node-drainer
	// deletes them without grace period. Action: none.
	DeadlinePassed Reason = "DeadlinePassed"
	// PodsGone: no pod that must leave is on the node, so the drain succeeds. Action: none.
	PodsGone Reason = "PodsGone"
	// DrainedBefore: the node was drained for an earlier fault of the session and is still empty, so this fault needs
	// no drain. Action: none.
	DrainedBefore Reason = "AlreadyDrained"
	// SkipRequested: the health event has `drainOverrides.skip`, so the record counts as drained. Action: none.
	SkipRequested Reason = "SkipRequested"
	// NoSession: a record in quarantine names no session, so its drain fails. This is an internal error. Action:
	// report it with the output of `nvsentinel why <node> -o json`, inspect the node and run
	// `nvsentinel release <node>`.
	NoSession Reason = "NoSession"
	// KeepingEmpty: the node is drained and not remediated yet, so node-drainer keeps it empty. Action: none.
	KeepingEmpty Reason = "KeepingEmpty"
	// PodsBack: pods that must leave came to a drained node, so node-drainer evicts them again. Action: none. If it
	// repeats, find the controller or toleration that places them there.
	PodsBack Reason = "PodsReturned"
	// NoOpenWork: no record of the node needs a drain. Action: none.
	NoOpenWork Reason = "NoOpenWork"
	// NoMarks: the rule sets of the session request neither a cordon nor a taint that keeps pods away, so the node is
	// never drained. Action: none if that is intended. Otherwise add a cordon to the rule set.
	NoMarks Reason = "NoMarks"
)

// Update is a new eviction status of one record.
type Update struct {
	ID     string
	Status record.EvictionStatus
}

// Final reports whether the record's drain is over with this update.
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
	// Overdue: it has lasted for so long that somebody has to act.
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

// Reads are the facts to read from the API server itself, rather than from a cache. The
// records are read with the pods.
type Reads struct{ Node, Pods bool }

// Needs is what has to be read before a step is taken. What cannot be taken back needs
// the Node; a drain that ends needs its pods too.
func Needs(s Step) Reads {
	return Reads{
		Node: s.Kind == Evict || s.Kind == Delete || s.Kind == Finish,
		Pods: s.Kind == Finish,
	}
}

// EndsPass reports whether nothing more follows before the world changes.
func (s Step) EndsPass() bool { return s.Kind == Wait || s.Kind == Nothing }
