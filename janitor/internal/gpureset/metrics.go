package gpureset

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/janitor/internal/reconciler"
)

// action is the label action_type of the metrics.
const action = "gpureset"

// Metrics of the controller: those of all kinds, and why resets fail.
type Metrics struct {
	*reconciler.Metrics
	failures *prometheus.CounterVec
	duration prometheus.Histogram
}

// NewMetrics registers the metrics that the kind has of its own.
func NewMetrics(r prometheus.Registerer, all *reconciler.Metrics) *Metrics {
	m := &Metrics{
		Metrics: all,
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gpu_reset_failure_reasons_total", Help: "GPU resets that failed, by the reason of their condition Complete.",
		}, []string{"reason"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "gpu_reset_duration_seconds", Help: "Seconds from taking the GPU services off a node to having them back, of resets that succeeded.",
			Buckets: prometheus.ExponentialBuckets(5, 2, 10),
		}),
	}
	r.MustRegister(m.failures, m.duration)
	return m
}

// ended counts an object's end.
func (m *Metrics) ended(succeeded bool, reason string, requested, teardown time.Duration) {
	if !succeeded {
		m.Count(action, "failed")
		m.failures.WithLabelValues(reason).Inc()
		return
	}
	m.Count(action, "succeeded")
	m.Took(action, requested)
	if teardown > 0 {
		m.duration.Observe(teardown.Seconds())
	}
}
