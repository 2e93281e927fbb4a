package consume

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// result is what a handling came to.
type result string

const (
	resultSettled     result = "settled"
	resultWait        result = "wait"
	resultPark        result = "park"
	resultTerminal    result = "terminal"
	resultError       result = "error"
	resultInterrupted result = "interrupted"
)

func (r result) settled() bool {
	return r == resultSettled || r == resultPark || r == resultTerminal
}

// Metrics of a loop; a nil *Metrics counts nothing.
type Metrics struct {
	handled  *prometheus.CounterVec
	duration prometheus.Histogram
	depth    prometheus.Gauge
	age      prometheus.Gauge
	commits  prometheus.Counter
}

// NewMetrics registers a loop's metrics under namespace, for example
// fault_quarantine.
func NewMetrics(registry prometheus.Registerer, namespace string) *Metrics {
	m := &Metrics{
		handled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "handled_total", Help: "Keys handled, by what it came to.",
		}, []string{"outcome"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Name: "event_handling_duration_seconds", Help: "Time of one handling.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}),
		depth:   prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "queue_depth", Help: "Keys waiting to be handled."}),
		age:     prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "oldest_unsettled_seconds", Help: "Age of the oldest delivery that is not settled."}),
		commits: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "commits_total", Help: "Feed positions stored."}),
	}
	registry.MustRegister(m.handled, m.duration, m.depth, m.age, m.commits)
	return m
}

func (m *Metrics) observe(r result, d time.Duration) {
	if m != nil {
		m.handled.WithLabelValues(string(r)).Inc()
		m.duration.Observe(d.Seconds())
	}
}

func (m *Metrics) lag(age time.Duration, depth int) {
	if m != nil {
		m.age.Set(age.Seconds())
		m.depth.Set(float64(depth))
	}
}

func (m *Metrics) committed() {
	if m != nil {
		m.commits.Inc()
	}
}
