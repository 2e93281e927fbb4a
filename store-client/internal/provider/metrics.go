package provider

import "github.com/prometheus/client_golang/prometheus"

// Metrics of a store.
type Metrics struct {
	Appends     *prometheus.CounterVec
	Conflicts   *prometheus.CounterVec
	Refusals    *prometheus.CounterVec
	Rescans     *prometheus.CounterVec
	Undecodable *prometheus.CounterVec
	Lag         *prometheus.GaugeVec
	Held        *prometheus.GaugeVec
	Expired     prometheus.Counter
	Trimmed     prometheus.Counter
}

// NewMetrics registers a store's metrics; a nil registerer keeps them private.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		Appends:     counter("nvsentinel_store_appends_total", "Records handed to the store, by result: appended, duplicate, refused.", "result"),
		Conflicts:   counter("nvsentinel_store_conflicts_total", "Batches of updates that lost a race.", "writer"),
		Refusals:    counter("nvsentinel_store_refused_updates_total", "Batches of updates refused: another writer's field, an illegal transition, or a record that only a newer version may change.", "writer"),
		Rescans:     counter("nvsentinel_store_feed_rescans_total", "Feeds that lost their position and read again.", "consumer", "reason"),
		Undecodable: counter("nvsentinel_store_undecodable_records_total", "Stored documents that cannot be decoded, which a feed passed, or lists (consumer list) left out; dead letters.", "consumer"),
		Lag: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nvsentinel_store_feed_lag_seconds",
			Help: "Age of the newest delivered change; 0 when everything was delivered.",
		}, []string{"consumer"}),
		Held: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nvsentinel_store_horizon_held_seconds",
			Help: "How long the oldest transaction under way on the database server, of anybody, has been seen. Feeds go on; the server's cleaning does not.",
		}, []string{"consumer"}),
		Expired: prometheus.NewCounter(prometheus.CounterOpts{Name: "nvsentinel_store_expired_records_total", Help: "Records deleted after their expiry."}),
		Trimmed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nvsentinel_store_dropped_dead_letters_total", Help: "Dead letters deleted because their source had too many, too large or too old ones.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.Appends, m.Conflicts, m.Refusals, m.Rescans, m.Undecodable, m.Lag, m.Held, m.Expired, m.Trimmed)
	}
	return m
}
