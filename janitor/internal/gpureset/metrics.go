package gpureset

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/janitor/internal/reconciler"
)

// action is the label action_type of the metrics.
const action = "gpureset"

// Metrics that GPUResets have of their own: why they fail, and how long nodes are without
// GPU services.
type Metrics struct {
	failures *prometheus.CounterVec
	duration prometheus.Histogram
}

// NewMetrics registers the metrics that the kind has of its own.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
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
func (c *Reconciler) ended(succeeded bool, reason string, requested, teardown time.Duration) {
	if !succeeded {
		c.Count(reconciler.StatusFailed)
		c.Resets.failures.WithLabelValues(reason).Inc()
		return
	}
	c.Count(reconciler.StatusSucceeded)
	c.Metrics.Took(action, requested)
	if teardown > 0 {
		c.Resets.duration.Observe(teardown.Seconds())
	}
}
