// Package lifecycle is the life of an announced maintenance as pure code: what a
// reading of the provider makes of the stored document, and when a node is taken out
// of service for it and released. It reads no clock and does no I/O.
package lifecycle

import (
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/kubelet"
)

// Names in health events.
const (
	// Agent is the name of this monitor.
	Agent = "csp-health-monitor"
	// Check is the check of every maintenance.
	Check = "CSPMaintenance"
	// CheckUnreachable is the check of a provider that cannot be read.
	CheckUnreachable = "CSPUnreachable"
)

// Policy is when a maintenance acts.
type Policy struct {
	// Lead is how long before its start a node is quarantined.
	Lead time.Duration
	// HealthyDelay is how long after its end a node is looked at first.
	HealthyDelay time.Duration
	// Readiness is how long after that a node may take to get ready.
	Readiness time.Duration
	// Strategy of the events.
	Strategy record.Strategy
}

// DefaultPolicy has the numbers of the earlier NVSentinel.
func DefaultPolicy() Policy {
	return Policy{Lead: 30 * time.Minute, HealthyDelay: 15 * time.Minute, Readiness: time.Hour, Strategy: record.PersistOnly}
}

const (
	// Retention is how long a finished maintenance is kept.
	Retention = record.Retention
	// DeletedNodeTimeout is how long a node that is away is waited for: fault-quarantine closes the
	// faults of such a node after the same time.
	DeletedNodeTimeout = 7 * 24 * time.Hour
	// late is how long after its announced end an open maintenance is called overdue.
	late = 24 * time.Hour
)

// Facts are what is known of the machine of a maintenance and of its node.
type Facts struct {
	// Known is true if the cluster's nodes have been read; without it nothing else here
	// means anything.
	Known bool
	// Node is the Node of the machine now; empty when it has none.
	Node string
	// Ready is that Node's condition, and Kubelet whether it is of a kubelet that is alive:
	// a condition that nobody keeps stays True.
	Ready   bool
	Kubelet kubelet.State
	// Contested is true if several Nodes claim the machine and none of them is verified;
	// then it has no Node.
	Contested bool
	// Other is true if the Node for which the fault was reported has another machine now.
	Other bool
}

// ready reports whether the Node is Ready by the word of a kubelet that is alive.
func (f Facts) ready() bool { return f.Ready && f.Kubelet == kubelet.Alive }
