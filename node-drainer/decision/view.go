// Package decision decides the next step of a node's drain from facts: the Node,
// its stored records and its pods. It does no I/O and reads no clock.
//
// A drain belongs to a session, and its extent is what the repairs that follow
// ask for together: the whole node, or the pods of some GPUs. It begins
// with the status InProgress on one record, ends with Succeeded on that record
// and AlreadyDrained on the others of the session, and is cancelled record by
// record as quarantines end.
package decision

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/eviction"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// View holds the facts of one pass over one node.
type View struct {
	Node Node
	// Records are the node's open faults, its faults whose drain is not
	// finished, and those of the Node's session whose drain succeeded.
	Records []record.Record
	// Pods are all pods bound to the node.
	Pods []*corev1.Pod
	// Attempts are the last tries to take a pod away, by its UID.
	Attempts map[types.UID]Attempt
	// Returns counts by the UID of a controller how often it put a pod back on the node
	// after one was evicted.
	Returns map[string]int
	// ReportedAt is when progress was last written; zero is never.
	ReportedAt time.Time
	// MovedAt is when an eviction was last let through; zero is not in this process.
	MovedAt time.Time
}

// Node is what the Node object shows.
type Node struct {
	// Exists is false only if the API server is sure that there is no such Node.
	Exists bool
	// Session is the session that the Node bears, or empty.
	Session string
	// State is the value of the state label, or empty.
	State         nodemark.State
	Unschedulable bool
	Taints        []record.Taint
	// Unknown: the store does not know all faults of the session.
	Unknown bool
	// Released: our annotations claim a cordon or taint that the Node lacks, so
	// a person took it away.
	Released bool
}

// NodeOf reads the facts of a Node object; nil is a Node that does not exist.
func NodeOf(n *corev1.Node) Node {
	if n == nil {
		return Node{}
	}
	m := nodemark.Read(n)
	return Node{
		Exists: true, Session: m.Session, State: m.State, Unschedulable: n.Spec.Unschedulable, Taints: nodemark.Taints(n),
		Unknown: len(m.Unknown) > 0, Released: m.Released != nodemark.NotReleased,
	}
}

// Result is what became of one try to take a pod away.
type Result string

// Results.
const (
	// Accepted: the API server took the eviction or deletion.
	Accepted Result = "Accepted"
	// Refused: a disruption budget does not allow it now.
	Refused Result = "Refused"
	// Errored: it failed for another reason.
	Errored Result = "Errored"
)

// Attempt is the last try to take a pod away.
type Attempt struct {
	At     time.Time
	Result Result
	// Tries counts tries in a row that were not accepted.
	Tries int
	// Budgets are the disruption budgets that refused, by name. The eviction API
	// refuses every pod that has more than one.
	Budgets []string
	// Allows: the budgets may allow a disruption now.
	Allows bool
	// Message is the error of an errored try.
	Message string
	// After is how long the API server asked to wait; 0 is our own backoff.
	After time.Duration
}

// Policy is how drains are done.
type Policy struct {
	Eviction eviction.Policy
	// Batch is how many pods one step takes away at most, so that facts are
	// read again in between.
	Batch int
	// Backoff is the time between tries that were not accepted; it doubles up
	// to MaxBackoff.
	Backoff, MaxBackoff time.Duration
	// Settle is how long an accepted try may take to show on the pod.
	Settle time.Duration
	// ReportEvery is the least time between two writes of progress.
	ReportEvery time.Duration
	// Recheck bounds every wait; the world's changes wake a drain earlier.
	Recheck time.Duration
	// Overdue is how long after the fault pods that may complete count as overdue;
	// BlockedFor is how long pods may be kept from leaving, while none leaves.
	Overdue, BlockedFor time.Duration
	// Returns is how many evictions show that a controller puts its pod back.
	Returns int
}

// DefaultOverdue is how long pods that may complete hold a drain before that is reported.
const DefaultOverdue = 24 * time.Hour

// DefaultPolicy is the pace of drains under an eviction policy.
func DefaultPolicy(p eviction.Policy) Policy {
	return Policy{
		Eviction: p, Batch: 32,
		Backoff: 5 * time.Second, MaxBackoff: time.Minute, Settle: 10 * time.Second,
		ReportEvery: 5 * time.Second, Recheck: 10 * time.Minute,
		Overdue: DefaultOverdue, BlockedFor: time.Hour, Returns: 3,
	}
}
