package report

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Metrics of a publisher and its outbox.
type Metrics struct {
	// Published counts acknowledged events, by processing strategy.
	Published *prometheus.CounterVec
	// Failures counts requests that were not acknowledged, by gRPC code.
	Failures *prometheus.CounterVec
	// DeadLetters counts events that were rejected permanently.
	DeadLetters prometheus.Counter
}

// NewPublished makes the counter of acknowledged events. Both strategies start
// at zero.
func NewPublished(prefix string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: prefix + "_events_published_total", Help: "Events that the platform connector acknowledged, by processing strategy.",
	}, []string{"strategy"})
	for _, s := range []record.Strategy{record.Process, record.PersistOnly} {
		c.WithLabelValues(string(s))
	}
	return c
}

// NewMetrics registers the metrics under the agent's prefix, for example
// nvsentinel_syslog_monitor.
func NewMetrics(r prometheus.Registerer, prefix string, b *Outbox, c clock.PassiveClock) *Metrics {
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Name: prefix + "_" + name, Help: help}
	}
	m := &Metrics{
		Published: NewPublished(prefix),
		Failures: prometheus.NewCounterVec(counter("publish_failures_total",
			"Requests that the platform connector did not acknowledge, by gRPC code."), []string{"code"}),
		DeadLetters: prometheus.NewCounter(counter("dead_letters_total", "Events that the platform connector rejected permanently.")),
	}
	gauge := func(name, help string, value func(Stats) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + "_" + name, Help: help},
			func() float64 { return value(b.Stats()) })
	}
	r.MustRegister(m.Published, m.Failures, m.DeadLetters,
		gauge("outbox_entries", "Events in the outbox that wait for the platform connector.",
			func(s Stats) float64 { return float64(s.Entries) }),
		gauge("outbox_bytes", "Size in bytes of the events in the outbox that wait for the platform connector.",
			func(s Stats) float64 { return float64(s.Bytes) }),
		gauge("outbox_dead_letters", "Dead letters in the outbox.",
			func(s Stats) float64 { return float64(s.Dead) }),
		gauge("outbox_oldest_seconds", "Age of the oldest event in the outbox in seconds, or 0 if none waits.",
			func(s Stats) float64 {
				if s.Oldest.IsZero() {
					return 0
				}
				return max(0, c.Since(s.Oldest).Seconds())
			}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: prefix + "_outbox_full_total",
			Help: "Appends that failed because the outbox was full. The source is read again later."},
			func() float64 { return float64(b.Stats().Refused) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: prefix + "_outbox_replaced_total",
			Help: "Outboxes that were unreadable at the start of the process and were replaced. Their events are lost."},
			func() float64 {
				if b.Origin() == Replaced {
					return 1
				}
				return 0
			}),
	)
	return m
}
