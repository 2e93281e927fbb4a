package reconciler

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/internal/report"
)

// Prefix begins the names of this monitor's own metrics; the others are the earlier NVSentinel's.
const Prefix = "nvsentinel_csp_monitor"

// Metrics of the monitor.
type Metrics struct {
	// Polls counts polls of the provider, PollErrors those that failed, Calls the
	// requests to its API.
	Polls, PollErrors, Calls prometheus.Counter
	// PollTime is the duration of a poll, Round that of a reconciliation with its poll, in seconds.
	PollTime, Round prometheus.Histogram
	// LastPoll is the time of the last successful poll, in seconds of Unix time.
	LastPoll prometheus.Gauge
	// Announcements counts announcements, by change of the stored maintenance.
	Announcements *prometheus.CounterVec
	// Decisions counts decisions, by step and reason.
	Decisions *prometheus.CounterVec
	// Waiting is the number of maintenances that wait, by reason.
	Waiting *prometheus.GaugeVec
	// Reported counts acknowledged events by stage.
	Reported *prometheus.CounterVec
	// Contested is the number of machines that several Nodes claim, none of them verified.
	Contested prometheus.Gauge
	// Unfinished is the number of maintenances that are not finished.
	Unfinished prometheus.Gauge
	// Queued is the number of events that wait for the connector.
	Queued prometheus.Gauge
	// Conflicts counts updates that failed because the stored revision had changed.
	Conflicts prometheus.Counter
	// Undecodable is the number of stored maintenances that cannot be decoded.
	Undecodable prometheus.Gauge
	// Forgotten counts finished maintenances that were deleted.
	Forgotten prometheus.Counter
	// Publisher are the counters of the publisher.
	Publisher *report.Metrics
}

// NewMetrics registers the metrics; a nil registerer keeps them private.
func NewMetrics(r prometheus.Registerer) *Metrics {
	opts := func(name, help string) prometheus.Opts { return prometheus.Opts{Name: name, Help: help} }
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts(opts(name, help)))
	}
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts(opts(name, help)), labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts(opts(name, help)))
	}
	seconds := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.01, 4, 8),
		})
	}
	m := &Metrics{
		Polls:         counter("nvsentinel_csp_monitor_polls_total", "Polls of the provider."),
		PollErrors:    counter("nvsentinel_csp_monitor_poll_errors_total", "Polls of the provider that failed. The next poll reads the same time window again."),
		Calls:         counter("nvsentinel_csp_monitor_api_requests_total", "Requests to the API of the provider."),
		PollTime:      seconds("csp_health_monitor_csp_polling_duration_seconds", "Duration of one poll of the provider in seconds."),
		Round:         seconds("nvsentinel_csp_monitor_reconcile_duration_seconds", "Duration of one reconciliation in seconds, including its poll of the provider."),
		LastPoll:      gauge("nvsentinel_csp_monitor_last_poll_timestamp_seconds", "Unix time of the last successful poll of the provider in seconds."),
		Announcements: vector("csp_health_monitor_csp_events_received_total", "Announcements of the provider, by change of the stored maintenance.", "change"),
		Decisions:     vector("nvsentinel_csp_monitor_decisions_total", "Decisions about maintenances, by step and reason.", "step", "reason"),
		Waiting:       prometheus.NewGaugeVec(prometheus.GaugeOpts(opts("nvsentinel_csp_monitor_maintenances_waiting", "Maintenances that wait and have no action due, by reason.")), []string{"reason"}),
		Reported:      vector("nvsentinel_csp_monitor_events_reported_total", "Events of maintenances that the platform connector acknowledged or rejected permanently, by stage.", "stage"),
		Contested:     gauge("nvsentinel_csp_monitor_contested_machines", "Machines that several Nodes claim, none of them verified. Maintenances of such a machine neither quarantine nor release a Node."),
		Unfinished:    gauge("nvsentinel_csp_monitor_maintenances_unfinished", "Maintenances that are not finished."),
		Queued:        gauge("nvsentinel_csp_monitor_pending_events", "Events that wait for the platform connector."),
		Conflicts:     counter("nvsentinel_csp_monitor_store_conflicts_total", "Writes to the store that failed because the stored revision had changed. The stored maintenances are read again."),
		Undecodable:   gauge("nvsentinel_csp_monitor_maintenances_unreadable", "Stored maintenances that cannot be decoded and are skipped."),
		Forgotten:     counter("nvsentinel_csp_monitor_maintenances_expired_total", "Finished maintenances that were deleted after their retention time."),
		Publisher: &report.Metrics{
			Published:   report.NewPublished(Prefix),
			Failures:    vector("nvsentinel_csp_monitor_publish_failures_total", "Requests that the platform connector did not acknowledge, by gRPC code.", "code"),
			DeadLetters: counter("nvsentinel_csp_monitor_dead_letters_total", "Events that the platform connector rejected permanently."),
		},
	}
	if r != nil {
		r.MustRegister(m.Polls, m.PollErrors, m.Calls, m.PollTime, m.Round, m.LastPoll, m.Announcements, m.Decisions, m.Waiting, m.Reported,
			m.Contested, m.Unfinished, m.Queued, m.Conflicts, m.Undecodable, m.Forgotten, m.Publisher.Published, m.Publisher.Failures, m.Publisher.DeadLetters)
	}
	return m
}

// count updates the numbers of open maintenances and pending events. The lock is held.
func (r *Reconciler) count() {
	r.Metrics.Unfinished.Set(float64(len(r.mirror)))
	r.Metrics.Queued.Set(float64(len(r.queue.entries)))
}
