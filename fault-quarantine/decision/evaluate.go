// Package decision evaluates the records of one node together: it folds faults and
// recoveries in their order over the open ones and decides what every record
// becomes and which faults stay open. It is pure.
package decision

import (
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/rulematch"
)

// deletedNodeTimeout is how long a deleted Node may stay away before its faults are
// closed (architecture: 7 days).
const deletedNodeTimeout = 7 * 24 * time.Hour

// Node is what is known of the Node object.
type Node struct {
	Identity record.NodeIdentity
	// Created is the object's creation time.
	Created  time.Time
	OptedOut bool
	// Session is the session the Node bears, or empty.
	Session string
	// RequiresRelease is set for a repeat offender whose session is kept for a person.
	RequiresRelease bool
	// Released is set when a person took away a mark our annotations claim.
	Released bool
	// Active are the faults that the Node lists as active. One that it does not
	// list whole has its id alone.
	Active []record.Record
	// Unconfirmed are the ids of faults that it lists as unknown to the store.
	Unconfirmed []string
	// LetGo is set when a person's release of the last session is noted on it.
	LetGo bool
	// Ended are the ids of faults that this release has ended.
	Ended []string
	// Unschedulable and Taints are what keeps pods away now.
	Unschedulable bool
	Taints        []record.Taint
	// Checks are the conditions of the node's checks, by name.
	Checks map[string]Check
}

// Check is what a Node's condition reports about a check: the node's connector writes
// it from a set of open faults of its own, which no state of the store changes.
type Check struct {
	Faulty bool
	// Since is when it began to report this.
	Since time.Time
}

// View is everything the evaluation depends on.
type View struct {
	// Name is the node's. Records of other nodes prove nothing of it, whatever their ids.
	Name string
	// Node is nil when the Node object is certain not to exist.
	Node *Node
	// Pending are the unevaluated and Held PROCESS records of the node.
	Pending []record.Record
	// Open are its open records.
	Open []record.Record
	// Condensed are the ids of those that are condensed (see Condensed).
	Condensed map[string]bool
	// Past are its evaluated recoveries and its records with a repair trace.
	Past []record.Record
	// Named are the records that the Node names and that are neither pending nor
	// open, as far as the store has them, and one of the Node's session.
	Named []record.Record
}

// Policy is what the operator decides.
type Policy struct {
	// Match evaluates the rule sets.
	Match func(record.Event) rulematch.Ruling
	// DryRun turns Matched verdicts into DryRun ones.
	DryRun bool
	// HoldReason is why no new session may be opened now, or empty: what would
	// open one is Held. A fault of a node in session is never held.
	HoldReason string
	// Retention is how long a finished record is kept.
	Retention time.Duration
}

// Evaluation is what becomes of the records.
type Evaluation struct {
	// Changed are the records to write, in this order (see Batches).
	Changed []record.Record
	// Open are the records that are open afterwards: the Node's marks are
	// computed from them.
	Open []record.Record
	// Condensed are the ids of the condensed records among these and Changed: the
	// reconciler makes them whole before it writes them (see Expand).
	Condensed map[string]bool
	// Opens is the record that opened a new session, or nil.
	Opens *record.Record
	// Held is the oldest fault that waits for a session to be allowed, or nil.
	Held *record.Record
	// Waiting names why some records were left unevaluated, or is empty; Detail describes
	// it.
	Waiting, Detail string
	// Unknown are the ids of faults of the Node's session of which the store does
	// not know whether they are over: marks may be added, none taken away.
	Unknown []string
	// Leave is set when the Node bears no marks, and all open faults are unknown
	// ones: it is left as it is.
	Leave bool
}

// Reasons to leave records unevaluated.
const (
	// WaitNodeMissing: the node of the fault has no Node object, so the fault has no decision yet. Action: none.
	WaitNodeMissing = "NodeNotFound"
	// WaitMachineUnsure: the record names no machine and is older than the Node, so it is not known whether the
	// fault is of the present machine, and it has no decision yet. Action: inspect the node, and cordon it if in
	// doubt (`kubectl cordon <node>`). A recovery of the check ends the wait.
	WaitMachineUnsure = "MachineUnknown"
	// WaitRule: no rule set matches the fault and one of them could not be evaluated, so the fault has no decision
	// and is evaluated again every minute. Action: correct the rule set that the Event names.
	WaitRule = "RuleNotEvaluated"
	// WaitRepair: the repair of the node is a repair chain run that has not succeeded, so no recovery of a monitor
	// counts until it or a later repair has. Action: none while it runs. If it failed, find the step with
	// `nvsentinel trace <node>`, and run `nvsentinel release <node>` when the node is sound.
	WaitRepair = "RepairUnfinished"
	// WaitRepeatOffender: the node has needed repeated repairs and is kept in quarantine, so no recovery of a monitor
	// counts. Action: find out why the machine fails again and again, then run `nvsentinel release <node>`.
	WaitRepeatOffender = "RepeatOffenderKept"
	// WaitUnknown: the store cannot confirm that the faults of the quarantine session are over, so the node keeps
	// its marks, and nothing is evicted or repaired. Action: restore the store, or run `nvsentinel release <node>`
	// when the node is sound.
	WaitUnknown = "SessionUnknown"
	// WaitNewer: only a newer version of the suite may change a record of the node, so the record has no decision
	// and the node is not released meanwhile. Action: complete the upgrade of the suite.
	WaitNewer = "NewerVersionRequired"
)

// Evaluate decides. It is safe to repeat: an evaluated record is not evaluated again.
// PERSIST_ONLY records count for nothing, even if the view contains them.
func Evaluate(v View, p Policy, now time.Time) Evaluation {
	v.Pending, v.Open, v.Past = record.Acting(v.Pending), record.Acting(v.Open), record.Acting(v.Past)
	f := newFold(v, p, now)
	f.endForeignSession()
	if f.sealed {
		return f.evaluation()
	}
	f.checkMarks()
	for _, r := range fault.InOrder(f.Pending) {
		if r.Event.IsHealthy {
			f.recovery(r)
		} else {
			f.fault(r)
		}
	}
	return f.evaluation()
}

// Session is the session of the open records: the id of the record that
// opened it, or empty.
func Session(open []record.Record) string {
	for _, r := range open {
		if r.Status.Session != "" {
			return r.Status.Session
		}
	}
	return ""
}
