package annotate

import "github.com/prometheus/client_golang/prometheus"

// Metrics of the annotator.
type Metrics struct {
	// Annotated counts annotations that were written or taken away, Failures rounds
	// that failed.
	Annotated, Failures prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		Annotated: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "metadata_collector_pod_annotations_total", Help: "Annotations of pods' GPUs that were written or taken away.",
		}),
		Failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "metadata_collector_pod_failures_total", Help: "Rounds in which pods could not be annotated with their GPUs.",
		}),
	}
	r.MustRegister(m.Annotated, m.Failures)
	return m
}
