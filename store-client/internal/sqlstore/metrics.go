package sqlstore

import "github.com/prometheus/client_golang/prometheus"

// Metrics of a store.
type Metrics struct {
	appends     *prometheus.CounterVec
	conflicts   *prometheus.CounterVec
	refusals    *prometheus.CounterVec
	rescans     *prometheus.CounterVec
	undecodable *prometheus.CounterVec
	lag         *prometheus.GaugeVec
	expired     prometheus.Counter
}

// NewMetrics registers a store's metrics; a nil registerer keeps them private.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		appends:     counter("nvsentinel_store_appends_total", "Records handed to the store, by result: appended, duplicate, refused.", "result"),
		conflicts:   counter("nvsentinel_store_conflicts_total", "Batches of updates that lost a race.", "writer"),
		refusals:    counter("nvsentinel_store_refused_updates_total", "Batches of updates refused: another writer's field or an illegal transition.", "writer"),
		rescans:     counter("nvsentinel_store_feed_rescans_total", "Feeds that lost their position and read again.", "consumer", "reason"),
		undecodable: counter("nvsentinel_store_undecodable_records_total", "Stored documents that a feed dead-lettered and passed.", "consumer"),
		lag: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nvsentinel_store_feed_lag_seconds",
			Help: "Age of the newest delivered change; when everything was delivered, how long a transaction under way has held the feed back, else 0.",
		}, []string{"consumer"}),
		expired: prometheus.NewCounter(prometheus.CounterOpts{Name: "nvsentinel_store_expired_records_total", Help: "Records deleted after their expiry."}),
	}
	if reg != nil {
		reg.MustRegister(m.appends, m.conflicts, m.refusals, m.rescans, m.undecodable, m.lag, m.expired)
	}
	return m
}
