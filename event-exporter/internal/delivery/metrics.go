package delivery

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Values of the label status.
const (
	success = "success"
	failure = "failure" // a dead letter
)

// Metrics of the exporter.
type Metrics struct {
	received  *prometheus.CounterVec
	published *prometheus.CounterVec
	errors    *prometheus.CounterVec
	dead      *prometheus.CounterVec
	duration  prometheus.Histogram

	registerer prometheus.Registerer
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		received:  counter("health_events_exporter_events_received_total", "Records read from the store, by processing strategy.", "strategy"),
		published: counter("health_events_exporter_events_published_total", "Events that the receiver accepted (success) or that became dead letters (failure), by status and processing strategy.", "status", "strategy"),
		errors:    counter("health_events_exporter_publish_errors_total", "Requests to the receiver that failed, by type of error.", "error_type"),
		dead:      counter("nvsentinel_exporter_dead_letters_total", "Events that became dead letters, by reason.", "reason"),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "health_events_exporter_publish_duration_seconds", Help: "Duration of one request to the receiver in seconds.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}),
		registerer: r,
	}
	for _, s := range []record.Strategy{record.Process, record.PersistOnly} {
		m.received.WithLabelValues(string(s))
		m.published.WithLabelValues(success, string(s))
		m.published.WithLabelValues(failure, string(s))
	}
	r.MustRegister(m.received, m.published, m.errors, m.dead, m.duration)
	return m
}

// Show adds the gauges that are read from an Exporter whose service has its loop.
func (m *Metrics) Show(d *Exporter) {
	gauge := func(name, help string, value func() float64) prometheus.GaugeFunc {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	m.registerer.MustRegister(
		gauge("nvsentinel_exporter_lag_seconds", "Age in seconds of the oldest record that is neither delivered nor a dead letter.", func() float64 { return d.lag().Seconds() }),
		gauge("nvsentinel_exporter_receiver_rejecting", "1 while the receiver rejects the credentials or the address of the requests, otherwise 0.", func() float64 {
			if d.breaker.ownFailure() != "" {
				return 1
			}
			return 0
		}),
	)
}
