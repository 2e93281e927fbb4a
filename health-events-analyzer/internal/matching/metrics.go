package matching

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/health-events-analyzer/decision"
	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
)

// Metrics of the analyzer.
type Metrics struct {
	// Received counts the faults that triggered rules, by strategy.
	Received *prometheus.CounterVec
	// Evaluations counts evaluations, by rule and reason.
	Evaluations *prometheus.CounterVec
	// Published counts acknowledged events, by kind and strategy.
	Published *prometheus.CounterVec
	// Failures counts requests that were not acknowledged, by gRPC code.
	Failures *prometheus.CounterVec
	// DeadLetters counts events that were rejected permanently.
	DeadLetters prometheus.Counter
	// Truncated counts windows that exceeded the limit of events.
	Truncated prometheus.Counter

	registerer prometheus.Registerer
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		Received: vec("health_event_analyzer_events_received_total", "Faults for which rules were evaluated, by processing strategy.", "strategy"),
		Evaluations: vec("nvsentinel_analyzer_evaluations_total",
			"Evaluations of rules for an event and a subject, by rule and reason of the result.", "rule_name", "reason"),
		Published: vec("nvsentinel_analyzer_events_published_total",
			"Events that the platform connector acknowledged, by kind (fault, recovery) and processing strategy.", "kind", "strategy"),
		Failures: vec("nvsentinel_analyzer_publish_failures_total",
			"Requests that the platform connector did not acknowledge, by gRPC code.", "code"),
		DeadLetters: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nvsentinel_analyzer_dead_letters_total", Help: "Events that the platform connector rejected permanently."}),
		Truncated: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nvsentinel_analyzer_truncated_windows_total", Help: "Event windows of a node or of the cluster that were truncated because they exceeded the limit of events."}),
		registerer: r,
	}
	r.MustRegister(m.Received, m.Evaluations, m.Published, m.Failures, m.DeadLetters, m.Truncated)
	return m
}

// know starts the counters of rules at zero.
func (m *Metrics) know(rules []rule.Rule) {
	for _, x := range rules {
		for _, reason := range decision.Reasons() {
			m.Evaluations.WithLabelValues(x.Name, string(reason))
		}
	}
}

// cached registers the number of events in memory.
func (m *Metrics) cached(count func() float64) {
	m.registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "nvsentinel_analyzer_cached_events", Help: "Events cached in memory between evaluations."}, count))
}
