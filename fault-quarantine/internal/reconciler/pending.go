package reconciler

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/fault-quarantine/decision"
)

// waits remembers which nodes have faults that cannot be judged, and why.
type waits struct {
	mu     sync.Mutex
	reason map[string]string
	// from has the nodes with more unjudged records than one look takes, and after
	// which of them the next look begins.
	from map[string]int64
}

// begin says after which record the look at a node begins, and whether the one
// before could not see all.
func (w *waits) begin(node string) (after int64, deep bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	after, deep = w.from[node]
	return after, deep
}

// skip has the next look at a node, which cannot see all either, begin after a
// record; 0 is the start.
func (w *waits) skip(node string, after int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.from == nil {
		w.from = map[string]int64{}
	}
	w.from[node] = after
}

// end has the next look at a node see all of it, if it can.
func (w *waits) end(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.from, node)
}

// is says whether a node waits for a reason.
func (w *waits) is(node, reason string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reason[node] == reason
}

// set notes a node's reason, or that it has none, and says whether it is new.
func (w *waits) set(node, reason string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reason == nil {
		w.reason = map[string]string{}
	}
	if w.reason[node] == reason {
		return false
	}
	if reason == "" {
		delete(w.reason, node)
	} else {
		w.reason[node] = reason
	}
	return true
}

var waitingNodes = prometheus.NewDesc("fault_quarantine_waiting_nodes",
	"Nodes with faults that cannot be judged or ended now, by reason.", []string{"reason"}, nil)

// Describe implements prometheus.Collector.
func (rc *Reconciler) Describe(out chan<- *prometheus.Desc) { out <- waitingNodes }

// Collect implements prometheus.Collector.
func (rc *Reconciler) Collect(out chan<- prometheus.Metric) {
	rc.waits.mu.Lock()
	defer rc.waits.mu.Unlock()
	count := map[string]float64{decision.WaitMachineUnsure: 0, decision.WaitNodeMissing: 0, decision.WaitUnknown: 0, decision.WaitRule: 0, decision.WaitRepair: 0, decision.WaitLemon: 0, decision.WaitNewer: 0}
	for _, reason := range rc.waits.reason {
		count[reason]++
	}
	for reason, n := range count {
		out <- prometheus.MustNewConstMetric(waitingNodes, prometheus.GaugeValue, n, reason)
	}
}
