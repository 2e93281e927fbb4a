package sink

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/platform-connectors/conditions"
)

// Results of an API call, as label values.
const (
	success = "success"
	failed  = "failed"
)

// Metrics of the Kubernetes sink.
type Metrics struct {
	folds    *prometheus.CounterVec
	updates  *prometheus.CounterVec
	events   *prometheus.CounterVec
	faults   prometheus.Gauge
	complete prometheus.Gauge
}

// NewMetrics registers the sink's metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		folds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "platform_connector_folded_total",
			Help: "Events folded into the node's fault set, by what they changed.",
		}, []string{"change"}),
		updates: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "k8s_platform_connector_node_condition_update_total",
			Help: "Patches of the node's conditions, by status.",
		}, []string{"status"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "k8s_platform_connector_node_event_operations_total",
			Help: "Kubernetes Events written about the node, by status.",
		}, []string{"status"}),
		faults: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "platform_connector_standing_faults",
			Help: "Faults in the node's fault set.",
		}),
		complete: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "platform_connector_fault_set_complete",
			Help: "1 when the node's fault set is complete, 0 while it waits to be rebuilt from the store.",
		}),
	}
	for _, status := range []string{success, failed} {
		m.updates.WithLabelValues(status)
		m.events.WithLabelValues(status)
	}
	r.MustRegister(m.folds, m.updates, m.events, m.faults, m.complete)
	return m
}

func (m *Metrics) folded(c conditions.Change) { m.folds.WithLabelValues(string(c)).Inc() }

func (m *Metrics) show(s state) {
	m.faults.Set(float64(s.Set.Faults()))
	m.complete.Set(0)
	if s.Complete {
		m.complete.Set(1)
	}
}

// Updated counts one patch of a node's conditions.
func (m *Metrics) Updated(err error) {
	if err != nil {
		m.updates.WithLabelValues(failed).Inc()
		return
	}
	m.updates.WithLabelValues(success).Inc()
}

// Told counts one Kubernetes Event about a node.
func (m *Metrics) Told(err error) {
	if err != nil {
		m.events.WithLabelValues(failed).Inc()
		return
	}
	m.events.WithLabelValues(success).Inc()
}
