package cloud

import "github.com/prometheus/client_golang/prometheus"

// Metrics of a plugin; nil counts nothing.
type Metrics struct {
	// Claims counts Nodes that claimed a machine before a signal and were not verified, and
	// Nodes that claimed the machine of another.
	Claims *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{Claims: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nvs_csp_plugin_unverified_claims_total",
		Help: "Nodes that were not verified to be the machine that they claim, and rivals of one that was, seen before signals, by what was found about them.",
	}, []string{"finding"})}
	r.MustRegister(m.Claims)
	return m
}

func (m *Metrics) claim(found Finding) {
	if m != nil {
		m.Claims.WithLabelValues(string(found)).Inc()
	}
}
