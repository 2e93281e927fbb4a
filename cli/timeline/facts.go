// Package timeline assembles what happened to a node, and how the fleet stands,
// from facts that somebody else has gathered. It does no I/O and reads no clock.
//
// A fact that could not be read is unknown, and the timeline shows it as such; only a
// source that was read can prove that something is absent.
package timeline

import (
	"time"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// Source is one place that facts come from.
type Source struct {
	// Name is "store" or "API server".
	Name string `json:"name"`
	// Read is true if it answered.
	Read bool `json:"read"`
	// Problem is why it did not, or what of it is missing.
	Problem string `json:"problem,omitempty"`
}

// Complete reports whether everything asked of the source was answered.
func (s Source) Complete() bool { return s.Read && s.Problem == "" }

// Facts are what is known of one node.
type Facts struct {
	Node string
	Now  time.Time
	// Store and Cluster describe what could be read.
	Store, Cluster Source
	// Pause is the emergency stop.
	Pause PauseState
	// Records are the node's records, in any order.
	Records []record.Record
	// Older is true if the store holds older records that were not read.
	Older bool
	// Sighting is the Node; nil is absent if Cluster was read, else unknown.
	Sighting *Node
	// Objects are the repair objects for the node.
	Objects []Object
	// DeadLettered are records of the node that a service passes over.
	DeadLettered []DeadLetter
	// Checks are the NodeHealthChecks that watch the node or have it in hand.
	Checks []Check
}

// FleetFacts are what is known of all nodes.
type FleetFacts struct {
	Now            time.Time
	Store, Cluster Source
	// Pause is the emergency stop.
	Pause PauseState
	// Open are the open records of all nodes, Backlog the unevaluated and held ones.
	Open, Backlog []record.Record
	// Orphaned are open faults whose publisher has switched to PERSIST_ONLY.
	Orphaned []OrphanedFault
	// DeadLettered are records that a service passes over.
	DeadLettered []DeadLetter
	// Undecodable are ids of records that cannot be decoded and are left out.
	Undecodable []string
	Nodes       []Node
	// Checks are all NodeHealthChecks.
	Checks []Check
	// Runs are all runs of repair chains, Refused the chains and templates that cannot
	// be used.
	Runs      []v1alpha1.RepairRun
	Refused   []Refused
	Consumers []Consumer
	// Newest are the newest PROCESS faults, of whatever verdict.
	Newest []record.Record
	// Counted is what of nodes' events was counted and not stored on the newest day.
	Counted []Counted
	// Uncovered are GPU nodes without a live publisher.
	Uncovered []Uncovered
}

// OrphanedFault is an open fault whose publisher has been switched to PERSIST_ONLY
// since: a recovery that it reports so lifts nothing.
type OrphanedFault struct {
	Node   string `json:"node"`
	Agent  string `json:"agent"`
	Check  string `json:"check"`
	Record string `json:"record"`
	// Newest is the newest event of the check, and At when it was stored.
	Newest string    `json:"newest"`
	At     time.Time `json:"at"`
}

// DeadLetter is a record that killed a service each time it looked at it: it passes
// the record over until a person takes its dead letter away. Or, without a record,
// what a service died at again and again, so that others go first.
type DeadLetter struct {
	Consumer string `json:"consumer"`
	Record   string `json:"record,omitempty"`
	// Key is what the service was at, mostly the node.
	Key string    `json:"key"`
	At  time.Time `json:"at"`
	// Crashes in a row, without a record.
	Crashes int `json:"crashes,omitempty"`
}

// NodesConnector is the consumer that stands for the connector of a node.
const NodesConnector = "node-connector"

// Node is what the API server shows of a node.
type Node struct {
	Name     string              `json:"name"`
	Identity record.NodeIdentity `json:"identity"`
	// Created is when the Node object was made; zero is unknown.
	Created time.Time `json:"created,omitzero"`
	// Ready is the status of the Ready condition: True, False, Unknown or empty.
	Ready string `json:"ready"`
	// Heartbeat is when its kubelet confirmed that last; zero is unknown.
	Heartbeat     time.Time      `json:"-"`
	Unschedulable bool           `json:"unschedulable"`
	Taints        []record.Taint `json:"taints,omitempty"`
	// Session, Claim and State are our marks: the session's id, the uid of the
	// repair object that claims the node, the state label.
	Session string         `json:"session,omitempty"`
	Claim   string         `json:"claim,omitempty"`
	State   nodemark.State `json:"state,omitempty"`
	// ManagedCordon is true if fault-quarantine claims the cordon.
	ManagedCordon bool `json:"ourCordon"`
	OptedOut      bool `json:"optedOut"`
	// RepeatOffender is its repeat offender mark, or nil.
	RepeatOffender *nodemark.RepeatOffender `json:"repeatOffender,omitempty"`
	// Restored is how often lifted marks of the session were restored, or nil.
	Restored *nodemark.Restored `json:"restored,omitempty"`
	// Unknown are faults of the session of which the store does not know whether they are
	// over.
	Unknown []string `json:"unknown,omitempty"`
	// Conditions are the checks that report a fault now.
	Conditions []Condition `json:"conditions,omitempty"`
	// Calls are what fault-remediation asks a person for.
	Calls []nodemark.Call `json:"manualInterventions,omitempty"`
	// Active are the faults that the Node itself lists while it is quarantined.
	Active []record.Event `json:"-"`
	// Labels of the Node.
	Labels map[string]string `json:"-"`
}

// Condition is a condition of a Node or of a repair object.
type Condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// Object is a repair object in the cluster.
type Object struct {
	Kind      string      `json:"kind"`
	Name      string      `json:"name"`
	UID       string      `json:"uid"`
	Node      string      `json:"node"`
	Session   string      `json:"session,omitempty"`
	CreatedAt time.Time   `json:"createdAt,omitzero"`
	Completed time.Time   `json:"completedAt,omitzero"`
	Status    []Condition `json:"conditions,omitempty"`
}

// Consumer is a service that reads the store's feed.
type Consumer struct {
	Name string `json:"name"`
	// Known is true if the lag below is known; Problem is why not.
	Known   bool   `json:"known"`
	Problem string `json:"problem,omitempty"`
	// Waiting counts the records that it has not committed; More is true if the count
	// stopped there. Oldest is when the first of them was stored.
	Waiting int       `json:"waiting"`
	More    bool      `json:"more,omitempty"`
	Oldest  time.Time `json:"oldest,omitzero"`
	// Lost is why its stored position is not usable, so that it will read again.
	Lost string `json:"lost,omitempty"`
	// CommittedAt is when it last committed; zero is never.
	CommittedAt time.Time `json:"committedAt,omitzero"`
}

// explain returns a verdict's reason in words, for a reader who sees it alone; empty if
// the reason explains itself.
func explain(r record.Reason) string {
	switch r {
	case record.Matched:
		return "" // its rules and effects stand beside it
	case record.NoRuleMatched:
		return "no enabled rule set matches"
	case record.Held:
		return "throttled by a budget or the emergency stop, processed when capacity is available"
	case record.Skipped:
		return "the event sets quarantineOverrides.skip"
	case record.OptedOut:
		return "the Node opts out by its label"
	case record.CoveredByReboot:
		return "the fault belongs to an earlier boot and is fixed by a reboot"
	case record.Superseded:
		return "a later recovery covers it completely, or its machine no longer exists"
	case record.Cleared:
		return "a recovery that ended open faults"
	case record.NoOpenFault:
		return "a recovery that found no open fault to end"
	case record.DryRun:
		return "would have been processed, fault-quarantine runs in dry-run mode"
	}
	return ""
}

// undecidable is why fault-quarantine cannot evaluate a fault, as far as the Node
// shows; empty when it can.
func undecidable(s observation, r record.Record) string {
	switch {
	case !r.IsFault():
		return ""
	case s.node == nil && s.read:
		return "NodeNotFound: the Node does not exist, the fault is evaluated when the Node returns or another machine gets its name"
	case s.node == nil || fault.Compare(fault.Of(r), s.node.Identity) != fault.Undecidable:
		return ""
	case fault.Machine(fault.Of(r)) == "" && s.node.Created.Before(r.CreatedAt):
		return ""
	}
	return "MachineUnknown: unknown whether the fault belongs to the machine that has the node name now, a recovery of its check ends it"
}
