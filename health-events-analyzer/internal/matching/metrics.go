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
	// Judgements counts answers, by rule and reason.
	Judgements *prometheus.CounterVec
	// Published counts acknowledged events, by kind and strategy.
	Published *prometheus.CounterVec
	// Failures counts requests that were not acknowledged, by gRPC code.
	Failures *prometheus.CounterVec
	// DeadLetters counts events refused for good.
	DeadLetters prometheus.Counter
	// Truncated counts windows that were too long to be read whole.
	Truncated prometheus.Counter

	registerer prometheus.Registerer
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		Received: vec("health_event_analyzer_events_received_total", "Faults that rules were asked about, by processing strategy.", "strategy"),
		Judgements: vec("nvsentinel_analyzer_evaluations_total",
			"Answers of rules about an event and a subject, by reason.", "rule_name", "reason"),
		Published: vec("nvsentinel_analyzer_events_published_total",
			"Events the platform connector acknowledged: faults and recoveries, by processing strategy.", "kind", "strategy"),
		Failures: vec("nvsentinel_analyzer_publish_failures_total",
			"Requests the platform connector did not acknowledge, by gRPC code.", "code"),
		DeadLetters: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nvsentinel_analyzer_dead_letters_total", Help: "Events the platform connector refused for good."}),
		Truncated: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nvsentinel_analyzer_truncated_windows_total", Help: "Times that a node or the cluster had more events than its window holds."}),
		registerer: r,
	}
	r.MustRegister(m.Received, m.Judgements, m.Published, m.Failures, m.DeadLetters, m.Truncated)
	return m
}

// know lets the counters of rules begin at zero.
func (m *Metrics) know(rules []rule.Rule) {
	for _, x := range rules {
		for _, reason := range decision.Reasons() {
			m.Judgements.WithLabelValues(x.Name, string(reason))
		}
	}
}

// cached shows how many events are in memory.
func (m *Metrics) cached(count func() float64) {
	m.registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "nvsentinel_analyzer_cached_events", Help: "Events kept in memory between judgements."}, count))
}
