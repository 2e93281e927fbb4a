package watch

import "github.com/prometheus/client_golang/prometheus"

// Metrics of the labeler.
type Metrics struct {
	// Changes counts labels that were written or taken off, by reason.
	Changes *prometheus.CounterVec
	// Failures counts Nodes that could not be patched.
	Failures prometheus.Counter
	// Skipped counts looks at a Node whose devices could not be counted.
	Skipped *prometheus.CounterVec
	// Below is how many Nodes have fewer devices of a class than they should.
	Below *prometheus.GaugeVec

	few map[string]map[string]bool // by class: the Nodes behind Below
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		Changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_labeler_label_changes_total", Help: "Labels of nodes that were written or taken off, by reason.",
		}, []string{"reason"}),
		Failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "labeler_node_update_failures_total", Help: "Patches of nodes that failed, lost races excepted; they are tried again.",
		}),
		Skipped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "labeler_device_count_skipped_updates_total", Help: "Looks at nodes whose devices of a class could not be counted.",
		}, []string{"class", "reason"}),
		Below: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nvsentinel_labeler_nodes_below_expected_device_count", Help: "Nodes whose labels say that they have fewer devices of a class than expected, as the leader sees them.",
		}, []string{"class"}),
		few: map[string]map[string]bool{},
	}
	r.MustRegister(m.Changes, m.Failures, m.Skipped, m.Below)
	return m
}

// below notes whether a Node has fewer devices of a class than it should. The caller
// sees to it that one does so at a time.
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
