package gateway

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/platform-connectors/passage"
)

// Metrics of a gateway.
type Metrics struct {
	calls       *prometheus.CounterVec
	refused     *prometheus.CounterVec
	connections prometheus.Gauge
	turnedAway  prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_gateway_calls_total", Help: "Calls of connectors, by what they ask for and the gRPC code of the answer.",
		}, []string{"call", "code"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_gateway_refused_records_total", Help: "Records that no connector's caller may bring, by reason. Any of them is worth a look at its node.",
		}, []string{"reason"}),
		connections: prometheus.NewGauge(prometheus.GaugeOpts{Name: "nvsentinel_gateway_connections", Help: "Open connections."}),
		turnedAway: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nvsentinel_gateway_connections_refused_total", Help: "Connections closed at once, because their address or all together had too many.",
		}),
	}
	for _, reason := range passage.Reasons() {
		m.refused.WithLabelValues(string(reason))
	}
	r.MustRegister(m.calls, m.refused, m.connections, m.turnedAway)
	return m
}
