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
	// StatusSucceeded, StatusFailed and StatusSessionOver are the ends of a maintenance action.
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
			Name: "janitor_actions_count", Help: "Maintenance actions, by type of action and status that they reached.",
		}, []string{"action_type", "status"}),
		mttr: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "janitor_action_mttr_seconds", Help: "Time in seconds from the request of a maintenance action to its success, by type of action.",
			Buckets: prometheus.ExponentialBuckets(10, 2, 10),
		}, []string{"action_type"}),
		signals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_janitor_signals_total", Help: "Reboot and replace requests sent to the provider plugin, by type of action and result of the delivery.",
		}, []string{"action_type", "result"}),
	}
	r.MustRegister(m.actions, m.mttr, m.signals)
	return m
}

func (m *Metrics) count(action, status string) { m.actions.WithLabelValues(action, status).Inc() }

// Took observes the time from the request of a maintenance action to its success.
func (m *Metrics) Took(action string, d time.Duration) {
	m.mttr.WithLabelValues(action).Observe(d.Seconds())
}

func (m *Metrics) signal(k Kind, result string) { m.signals.WithLabelValues(k.action, result).Inc() }
