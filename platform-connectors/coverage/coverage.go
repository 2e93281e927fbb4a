// Package coverage finds GPU nodes without fault detection: those without a monitor, or
// without a connector that accepts its events. It does no I/O and reads no clock.
package coverage

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Check is the check's name. The agent's is record.CoverageAgent.
const Check = "GpuNodeUncovered"

const (
	// renewal is the age from which on such a fault is reported again while it
	// stands, so that the store still has it.
	renewal = record.Retention / 2
)

// View is what is known of one Node.
type View struct {
	// GPU: it has GPUs.
	GPU bool
	// Publisher, Connector: a Ready pod of a monitor, and of the connector, is on it.
	Publisher, Connector bool
	// For is how long one of the two has been missing, as far as was seen.
	For time.Duration
	// Machine is the one behind the Node's name.
	Machine record.NodeIdentity
	// Last is the newest record of the check about this Node, or nil, and Age its age.
	Last *record.Record
	Age  time.Duration
}

// Policy is what an operator configures for coverage.
type Policy struct {
	// After is how long a Node may be without.
	After time.Duration
	// Strategy is that of a report; a recovery has that of what it ends.
	Strategy record.Strategy
}

// Reason is why something is, or is not, to be reported.
type Reason string

// Reasons.
const (
	// NoGPU: the Node has no GPUs and no fault `GpuNodeUncovered` is open, so nothing is reported. Action: none.
	NoGPU Reason = "NoGPU"
	// Covered: a monitor and the connector are Ready on the node and no fault `GpuNodeUncovered` is open, so
	// nothing is reported. Action: none.
	Covered Reason = "Covered"
	// Waits: no monitor or no connector is Ready on the node, and the time of `--coverage-after` is not over, so
	// nothing is reported yet. Action: none.
	Waits Reason = "Waiting"
	// Stands: no monitor or no connector is Ready on the node, and that is reported already. Action: make the pods
	// of the monitor and the connector Ready (`kubectl get pods -A --field-selector spec.nodeName=<node>`).
	Stands Reason = "AlreadyReported"
	// Report: no monitor or no connector has been Ready on the node for the time of `--coverage-after`, so the
	// fault `GpuNodeUncovered` is reported. Action: make the pods of the monitor and the connector Ready (`kubectl
	// get pods -A --field-selector spec.nodeName=<node>`), or remove the label `nvidia.com/gpu.present` from a
	// node that needs no monitor.
	Report Reason = "Reported"
	// Recovered: a monitor and the connector are Ready again, or the node has no GPUs any more, so the recovery is
	// reported. Action: none.
	Recovered Reason = "Recovered"
)

// Missing reports whether a GPU node lacks one of the two now.
func (v View) Missing() bool { return v.GPU && (!v.Publisher || !v.Connector) }

// Uncovered reports whether the Node counts as one without a live publisher.
func (r Reason) Uncovered() bool { return r == Stands || r == Report }

// Decide evaluates one Node.
func Decide(v View, p Policy) Reason {
	stands := v.Last != nil && !v.Last.Event.IsHealthy
	lasts := stands && (v.Last.Acts() || p.Strategy != record.Process && v.Age < renewal)
	switch {
	case !v.Missing() && stands:
		return Recovered
	case !v.GPU:
		return NoGPU
	case !v.Missing():
		return Covered
	case lasts:
		return Stands
	case v.For < p.After:
		return Waits
	}
	return Report
}

// Record is what is appended for a Node: a fault, or the recovery of the last one.
// Its id follows from what is known, so that two who know the same append one.
func Record(node string, v View, p Policy, reason Reason, now time.Time) record.Record {
	last := ""
	if v.Last != nil {
		last = v.Last.ID
	}
	id := record.DerivedID(fmt.Sprintf("nvsentinel coverage of %s %s after %q", v.Machine.UID, reason, last))
	e := record.Event{
		Version: 1, ID: id, Agent: record.CoverageAgent, CheckName: Check, ComponentClass: "Node", NodeName: node,
		RecommendedAction: record.ActionContactSupport, ProcessingStrategy: p.Strategy, GeneratedTimestamp: now,
		Message: fmt.Sprintf("no live publisher for %s: %s, so faults of this node would not be reported", p.After, v.text()),
	}
	if reason == Recovered {
		e.IsHealthy, e.Message, e.RecommendedAction = true, record.HealthyMessage, record.ActionNone
		e.ProcessingStrategy = v.Last.Event.ProcessingStrategy
	}
	r := record.Record{ID: id, CreatedAt: now, Node: v.Machine, Event: e, Accepted: digest(id)}
	r.Expire(now)
	return r
}

// text describes what is missing.
func (v View) text() string {
	switch {
	case !v.Publisher && !v.Connector:
		return "neither a monitor nor the connector is Ready on the node"
	case !v.Publisher:
		return "no monitor is Ready on the node"
	}
	return "the connector is not Ready on the node"
}

func digest(id string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte("nvsentinel coverage "+id)))
}
