package reconciler

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/fault-quarantine/decision"
)

// waits remembers which nodes have faults that cannot be evaluated, and why.
type waits struct {
	mu     sync.Mutex
	reason map[string]string
}

// is reports whether a node waits for a reason.
func (w *waits) is(name, reason string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reason[name] == reason
}

// set notes a node's reason, or that it has none, and reports whether it is new.
func (w *waits) set(name, reason string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reason == nil {
		w.reason = map[string]string{}
	}
	if w.reason[name] == reason {
		return false
	}
	if reason == "" {
		delete(w.reason, name)
	} else {
		w.reason[name] = reason
	}
	return true
}

var waitingNodes = prometheus.NewDesc("nvsentinel_fault_quarantine_waiting_nodes",
	"Nodes with faults that can currently be neither evaluated nor closed, by reason.", []string{"reason"}, nil)

// Describe implements prometheus.Collector.
func (rc *Reconciler) Describe(out chan<- *prometheus.Desc) { out <- waitingNodes }

// Collect implements prometheus.Collector.
func (rc *Reconciler) Collect(out chan<- prometheus.Metric) {
	rc.waits.mu.Lock()
	defer rc.waits.mu.Unlock()
	count := map[string]float64{decision.WaitMachineUnsure: 0, decision.WaitNodeMissing: 0, decision.WaitUnknown: 0, decision.WaitRule: 0, decision.WaitRepair: 0, decision.WaitRepeatOffender: 0, decision.WaitNewer: 0}
	for _, reason := range rc.waits.reason {
		count[reason]++
	}
	for reason, n := range count {
		out <- prometheus.MustNewConstMetric(waitingNodes, prometheus.GaugeValue, n, reason)
	}
}

// maxListedIDs bounds the ids in an Event.
const maxListedIDs = 5

// waitingText is what a person should know about a wait.
func waitingText(j decision.Evaluation) string {
	switch j.Waiting {
	case decision.WaitUnknown:
	case decision.WaitRepair:
		return "The node stays in quarantine although its recovery was reported: its remediation has not succeeded (" + j.Detail + ")"
	case decision.WaitRepeatOffender:
		return "The node stays in quarantine although its recovery was reported: it is a repeat offender and requires a manual release (" + j.Detail + ")"
	case decision.WaitNewer:
		return "A record of the node requires a newer version of this program, all other records are evaluated: " + j.Detail + ", see docs/tasks/upgrade.md"
	case decision.WaitRule:
		return "A fault is not evaluated, because a rule fails and no other rule matches. The evaluation is retried: " + j.Detail
	default:
		return "A fault is not evaluated: its record names no machine and is older than this Node, so that it may belong to another machine"
	}
	ids := strings.Join(j.Unknown[:min(len(j.Unknown), maxListedIDs)], ", ")
	if j.Leave {
		return "The store has open faults (" + ids + ") for which this Node was quarantined, but the Node has no cordon, taint or label: the store may have an older state. " +
			"No action is taken for them until the node's checks report again, see docs/tasks/back-up-and-restore.md"
	}
	return "The store does not show whether these faults of the Node's quarantine session have ended: " + ids + ". Nothing is drained, remediated or released until it does. " +
		"To confirm that they have ended, run nvsentinel release, see docs/tasks/back-up-and-restore.md"
}
