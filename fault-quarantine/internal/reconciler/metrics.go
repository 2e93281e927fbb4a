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
	// Stranded are open faults whose publisher says PERSIST_ONLY by now.
	Stranded *prometheus.GaugeVec
}

// NewMetrics registers the reconciler's metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "fault_quarantine", Name: name, Help: help})
	}
	m := &Metrics{
		Verdicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "fault_quarantine", Name: "verdicts_total", Help: "Records judged, by the reason of the verdict.",
		}, []string{"reason"}),
		RuleErrors:  counter("rule_errors_total", "Rule evaluations that failed. If no other rule matches, the fault is left unjudged and tried again."),
		Quarantined: counter("nodes_quarantined_total", "Sessions opened on a Node."),
		Released:    counter("nodes_unquarantined_total", "Sessions ended on a Node."),
		Uncordoned:  counter("nodes_manually_uncordoned_total", "Sessions that a person ended by uncordoning the Node."),
		Untainted:   counter("nodes_manually_untainted_total", "Sessions that a person ended by removing a taint of ours."),
		Stranded: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "fault_quarantine", Name: "stranded_faults",
			Help: "Open PROCESS faults whose publisher says PERSIST_ONLY by now, by agent; told by the leader.",
		}, []string{"agent"}),
	}
	registry.MustRegister(m.Verdicts, m.RuleErrors, m.Quarantined, m.Released, m.Uncordoned, m.Untainted, m.Stranded)
	return m
}
