package delivery

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Namespace of the exporter's metrics, the one of existing dashboards.
const Namespace = "health_events_exporter"

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
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: Namespace, Name: name, Help: help}, labels)
	}
	m := &Metrics{
		received:  counter("events_received_total", "Records read from the store.", "strategy"),
		published: counter("events_published_total", "Events that the receiver took (success) or that became dead letters (failure).", "status", "strategy"),
		errors:    counter("publish_errors_total", "Requests that did not end well, by reason.", "error_type"),
		dead:      counter("dead_letters_total", "Events kept as dead letters, by reason.", "reason"),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: Namespace, Name: "publish_duration_seconds", Help: "Time of one request.",
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
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: Namespace, Name: name, Help: help}, value)
	}
	m.registerer.MustRegister(
		gauge("lag_seconds", "Age of the oldest record that is neither delivered nor a dead letter.", func() float64 { return d.lag().Seconds() }),
		gauge("refused", "1 while the receiver does not know us: credentials or address.", func() float64 {
			if d.breaker.ours() != "" {
				return 1
			}
			return 0
		}),
	)
}
