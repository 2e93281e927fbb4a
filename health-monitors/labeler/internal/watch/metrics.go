package watch

import "github.com/prometheus/client_golang/prometheus"

// Metrics of the labeler.
type Metrics struct {
	// Changes counts labels that were set or removed, by reason.
	Changes *prometheus.CounterVec
	// Failures counts Nodes that could not be patched.
	Failures prometheus.Counter
	// Skipped counts reconciliations of a Node that could not count its devices.
	Skipped *prometheus.CounterVec
	// Below is the number of Nodes that have fewer devices of a class than expected.
	Below *prometheus.GaugeVec

	few map[string]map[string]bool // by class: the Nodes behind Below
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		Changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_labeler_label_changes_total", Help: "Labels of Nodes that were set or removed, by reason.",
		}, []string{"reason"}),
		Failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "labeler_node_update_failures_total", Help: "Patches of Nodes that failed and are retried, except for conflicts.",
		}),
		Skipped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "labeler_device_count_skipped_updates_total", Help: "Reconciliations of Nodes that could not count the devices of a class, by class and reason.",
		}, []string{"class", "reason"}),
		Below: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nvsentinel_labeler_nodes_below_expected_device_count", Help: "Nodes that have fewer devices of a class than expected according to their labels, by class, as reported by the leader.",
		}, []string{"class"}),
		few: map[string]map[string]bool{},
	}
	r.MustRegister(m.Changes, m.Failures, m.Skipped, m.Below)
	return m
}

// below records whether a Node has fewer devices of a class than expected. The caller
// serializes the calls.
func (m *Metrics) below(class, node string, few bool) {
	if m.few[class] == nil {
		m.few[class] = map[string]bool{}
	}
	delete(m.few[class], node)
	if few {
		m.few[class][node] = true
	}
	m.Below.WithLabelValues(class).Set(float64(len(m.few[class])))
}
