package reconciler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Values of the label status of janitor_actions_count.
const (
	statusStarted        = "started"
	statusSessionUnknown = "session_unknown" // began to wait for it
	statusDeleted        = "deleted"
	statusExpired        = "expired"
	// StatusSucceeded, StatusFailed and StatusSessionOver are the ends of a repair.
	StatusSucceeded   = "succeeded"
	StatusFailed      = "failed"
	StatusSessionOver = "session_over"
)

// Values of the label result of nvsentinel_janitor_signals_total.
const (
	resultAcknowledged = "acknowledged"
	resultNotSent      = "not_sent"
	resultUnknown      = "unknown"
	resultRefused      = "refused"
)

// Metrics of all controllers.
type Metrics struct {
	actions *prometheus.CounterVec
	mttr    *prometheus.HistogramVec
	signals *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "janitor_actions_count", Help: "Repairs by kind and by how far they came.",
		}, []string{"action_type", "status"}),
		mttr: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "janitor_action_mttr_seconds", Help: "Seconds from the request of a repair to its success.",
			Buckets: prometheus.ExponentialBuckets(10, 2, 10),
		}, []string{"action_type"}),
		signals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_janitor_signals_total", Help: "Signals given to the plugin, by what is known of their delivery.",
		}, []string{"action_type", "result"}),
	}
	r.MustRegister(m.actions, m.mttr, m.signals)
	return m
}

func (m *Metrics) count(action, status string) { m.actions.WithLabelValues(action, status).Inc() }

// Took observes the time from the request of a repair to its success.
func (m *Metrics) Took(action string, d time.Duration) {
	m.mttr.WithLabelValues(action).Observe(d.Seconds())
}

func (m *Metrics) signal(k Kind, result string) { m.signals.WithLabelValues(k.action, result).Inc() }
