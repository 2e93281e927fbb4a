package gpureset

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/janitor/internal/reconciler"
)

// action is the label action_type of the metrics.
const action = "gpureset"

// Metrics of GPUResets only: the reasons of failures, and the time that nodes are without
// GPU services.
type Metrics struct {
	failures *prometheus.CounterVec
	duration prometheus.Histogram
}

// NewMetrics registers the metrics of the kind.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gpu_reset_failure_reasons_total", Help: "GPU resets that failed, by reason of the condition Complete.",
		}, []string{"reason"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "gpu_reset_duration_seconds", Help: "Time in seconds from the removal of the GPU services from a node to their restoration, for successful GPU resets.",
			Buckets: prometheus.ExponentialBuckets(5, 2, 10),
		}),
	}
	r.MustRegister(m.failures, m.duration)
	return m
}

// ended counts the end of an object.
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
