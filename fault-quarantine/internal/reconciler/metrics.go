package reconciler

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts what the reconciler did.
type Metrics struct {
	Verdicts    *prometheus.CounterVec
	RuleErrors  prometheus.Counter
	Quarantined prometheus.Counter
	Released    prometheus.Counter
	Uncordoned  prometheus.Counter
	Untainted   prometheus.Counter
	Requested   prometheus.Counter
	// Restored counts cordons and taints that were restored after a removal without a release.
	Restored *prometheus.CounterVec
	// Contested is the number of nodes to which that happens repeatedly.
	Contested prometheus.Gauge
	// OrphanedFaults is the number of open faults whose publisher now reports PERSIST_ONLY.
	OrphanedFaults *prometheus.GaugeVec
}

// NewMetrics registers the reconciler's metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &Metrics{
		Verdicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_fault_quarantine_evaluations_total", Help: "Records evaluated, by reason of the decision.",
		}, []string{"reason"}),
		RuleErrors:  counter("nvsentinel_fault_quarantine_rule_evaluation_errors_total", "Rule evaluations that failed. If no other rule matches, the evaluation of the fault is retried."),
		Quarantined: counter("fault_quarantine_nodes_quarantined_total", "Quarantine sessions started on a Node."),
		Released:    counter("fault_quarantine_nodes_unquarantined_total", "Quarantine sessions ended on a Node."),
		Uncordoned:  counter("fault_quarantine_nodes_manually_uncordoned_total", "Quarantine sessions ended by an uncordon of the Node, by a user or, with releaseOnAnyUncordon, by any account."),
		Untainted:   counter("fault_quarantine_nodes_manually_untainted_total", "Quarantine sessions ended by the removal of a taint of the session, by a user or, with releaseOnAnyUncordon, by any account."),
		Requested:   counter("nvsentinel_fault_quarantine_nodes_manually_released_total", "Quarantine sessions that a user ended with nvsentinel release or its annotation."),
		Restored: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_fault_quarantine_node_marks_restored_total",
			Help: "Cordons and taints of quarantine sessions that were restored after a removal that does not release the Node, by action (uncordon, untaint) and kind of user.",
		}, []string{"action", "user_kind"}),
		Contested: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nvsentinel_fault_quarantine_contested_nodes",
			Help: "Nodes whose cordon or taints were restored at least 5 times in their quarantine session, as reported by the leader.",
		}),
		OrphanedFaults: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nvsentinel_fault_quarantine_orphaned_faults",
			Help: "Open PROCESS faults whose publisher now reports PERSIST_ONLY, by agent, as reported by the leader.",
		}, []string{"agent"}),
	}
	registry.MustRegister(m.Verdicts, m.RuleErrors, m.Quarantined, m.Released, m.Uncordoned, m.Untainted, m.Requested, m.Restored, m.Contested, m.OrphanedFaults)
	return m
}
