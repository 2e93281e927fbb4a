package spool

import "github.com/prometheus/client_golang/prometheus"

// Dead letter reasons, as label values.
const (
	// DeadDamaged is an entry that could not be read back from the disk.
	DeadDamaged = "damaged"
	// DeadUndecodable is an undamaged entry that is not a record.
	DeadUndecodable = "undecodable"
	// DeadFatal is an entry that killed the process each time it was tried alone.
	DeadFatal = "fatal"
	// DeadRefused is an event that the store, or the gateway before it, refuses for good.
	DeadRefused = "refused"
)

// Metrics of the write-ahead log.
type Metrics struct {
	// DeadLetters counts dead letters, by reason.
	DeadLetters *prometheus.CounterVec
	overwritten prometheus.Counter
	groupSize   prometheus.Histogram
	bytes       prometheus.Gauge
	torn        prometheus.Counter
	failures    prometheus.Counter
	registerer  prometheus.Registerer
}

// NewMetrics registers the metrics of the write-ahead log.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		registerer: r,
		DeadLetters: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_connector_dead_letters_total",
			Help: "Events that became dead letters because they could not be read back or stored, by reason.",
		}, []string{"reason"}),
		overwritten: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nvsentinel_connector_dead_letters_overwritten_total",
			Help: "Lines of dead-letters.jsonl that were dropped in favor of newer ones.",
		}),
		groupSize: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "nvsentinel_connector_wal_group_records",
			Help:    "Number of records that one fsync made durable.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}),
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nvsentinel_connector_wal_bytes",
			Help: "Size in bytes of the part of the write-ahead log that is not released yet.",
		}),
		torn: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nvsentinel_connector_wal_torn_bytes_total",
			Help: "Bytes of unacknowledged writes that were removed when the write-ahead log was opened.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nvsentinel_connector_wal_write_failures_total",
			Help: "Groups of records that could not be made durable and were not acknowledged.",
		}),
	}
	for _, reason := range []string{DeadDamaged, DeadUndecodable, DeadFatal, DeadRefused} {
		m.DeadLetters.WithLabelValues(reason)
	}
	r.MustRegister(m.DeadLetters, m.overwritten, m.groupSize, m.bytes, m.torn, m.failures)
	return m
}

// watch registers the age of the oldest unreleased record and the limit of the size.
func (m *Metrics) watch(s *Spool) {
	m.registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "nvsentinel_connector_wal_max_bytes",
		Help: "Size in bytes from which on the write-ahead log rejects events with ResourceExhausted.",
	}, func() float64 { return float64(s.o.MaxBytes) }))
	m.registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "nvsentinel_connector_wal_oldest_seconds",
		Help: "Age in seconds of the oldest accepted record that is not released, or 0 if there is none.",
	}, func() float64 { return s.Oldest().Seconds() }))
}
