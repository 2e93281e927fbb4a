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
	// Restored are marks that were lifted without a release.
	Restored *prometheus.CounterVec
	// Contested are the nodes to which that happens again and again.
	Contested prometheus.Gauge
	// Stranded are open faults whose publisher says PERSIST_ONLY by now.
	Stranded *prometheus.GaugeVec
}

// NewMetrics registers the reconciler's metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &Metrics{
		Verdicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_fault_quarantine_evaluations_total", Help: "Records judged, by the reason of the verdict.",
		}, []string{"reason"}),
		RuleErrors:  counter("nvsentinel_fault_quarantine_rule_evaluation_errors_total", "Rule evaluations that failed. If no other rule matches, the fault is left unjudged and tried again."),
		Quarantined: counter("fault_quarantine_nodes_quarantined_total", "Sessions opened on a Node."),
		Released:    counter("fault_quarantine_nodes_unquarantined_total", "Sessions ended on a Node."),
		Uncordoned:  counter("fault_quarantine_nodes_manually_uncordoned_total", "Sessions that a person, or with anyoneReleases anyone, ended by uncordoning the Node."),
		Untainted:   counter("fault_quarantine_nodes_manually_untainted_total", "Sessions that a person, or with anyoneReleases anyone, ended by removing a taint of ours."),
		Requested:   counter("nvsentinel_fault_quarantine_nodes_manually_released_total", "Sessions that a person ended by nvsentinel release, or by its annotation."),
		Restored: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_fault_quarantine_node_marks_restored_total",
			Help: "Marks of sessions restored because somebody lifted them without releasing the Node, by what was done (uncordon, untaint) and by the kind of its user.",
		}, []string{"action", "user_kind"}),
		Contested: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nvsentinel_fault_quarantine_contested_nodes",
			Help: "Nodes whose marks were restored at least 5 times in their session; told by the leader.",
		}),
		Stranded: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nvsentinel_fault_quarantine_orphaned_faults",
			Help: "Open PROCESS faults whose publisher says PERSIST_ONLY by now, by agent; told by the leader.",
		}, []string{"agent"}),
	}
	registry.MustRegister(m.Verdicts, m.RuleErrors, m.Quarantined, m.Released, m.Uncordoned, m.Untainted, m.Requested, m.Restored, m.Contested, m.Stranded)
	return m
}
