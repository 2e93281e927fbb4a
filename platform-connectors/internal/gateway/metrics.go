package gateway

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/platform-connectors/passage"
)

// Metrics of a gateway.
type Metrics struct {
	calls        *prometheus.CounterVec
	refused      *prometheus.CounterVec
	connections  prometheus.Gauge
	held         prometheus.Gauge
	waiting      prometheus.Gauge
	turnedAway   *prometheus.CounterVec
	overQuota    *prometheus.CounterVec
	countedBytes prometheus.Counter
	share        *prometheus.GaugeVec
}

// droppedLetter is the label value of dead letters that are not kept.
const droppedLetter = "dead-letter"

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
		held: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nvsentinel_gateway_request_bytes", Help: "Bytes of memory that requests hold: from before they are received until they are answered.",
		}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nvsentinel_gateway_requests_waiting", Help: "Requests that are not received yet, because they wait for memory.",
		}),
		turnedAway: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_gateway_connections_refused_total",
			Help: "Connections that were refused or ended, by reason: too many of the gateway, of an address on which no token was verified yet, or of a node; anonymous: no token in time; unread: the peer does not read answers.",
		}, []string{"reason"}),
		overQuota: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_gateway_over_quota_records_total",
			Help: "Records of nodes beyond their quota of the day: persist-only and repeat are counted and not stored, merge are stored as a fault of the whole check; dead-letter are dead letters that are not kept.",
		}, []string{"verdict"}),
		countedBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nvsentinel_gateway_over_quota_bytes_total", Help: "Bytes of the records that were counted and not stored, because their node is beyond its quota of the day.",
		}),
		share: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nvsentinel_gateway_node_quota_share",
			Help: "Part of its quota of the day that a node has used through all gateways, of nodes that have used half of it and more, at most 100.",
		}, []string{"node"}),
	}
	m.overQuota.WithLabelValues(droppedLetter)
	for _, verdict := range passage.Verdicts() {
		m.overQuota.WithLabelValues(string(verdict))
	}
	for _, reason := range RefusedReasons() {
		m.turnedAway.WithLabelValues(string(reason))
	}
	for _, reason := range passage.Reasons() {
		m.refused.WithLabelValues(string(reason))
	}
	r.MustRegister(m.calls, m.refused, m.connections, m.held, m.waiting, m.turnedAway, m.overQuota, m.countedBytes, m.share)
	return m
}
