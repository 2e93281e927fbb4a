package reconciler

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/internal/report"
)

// Prefix begins the names of this monitor's own metrics; the others are the earlier NVSentinel's.
const Prefix = "nvsentinel_csp_monitor"

// Metrics of the monitor.
type Metrics struct {
	// Polls counts readings of the provider, PollErrors those that failed, Calls the
	// requests to its API.
	Polls, PollErrors, Calls prometheus.Counter
	// PollTime is how long a reading takes, Round a round with its reading, in seconds.
	PollTime, Round prometheus.Histogram
	// LastPoll is when the provider was read last, in seconds of Unix time.
	LastPoll prometheus.Gauge
	// Announcements counts what announcements did to the stored documents.
	Announcements *prometheus.CounterVec
	// Decisions counts what was decided, and why.
	Decisions *prometheus.CounterVec
	// Waiting is how many maintenances wait, and for what.
	Waiting *prometheus.GaugeVec
	// Told counts acknowledged events by stage.
	Told *prometheus.CounterVec
	// Contested is how many machines several Nodes claim of which none is verified.
	Contested prometheus.Gauge
	// Unfinished is how many maintenances are open.
	Unfinished prometheus.Gauge
	// Queued is how many events wait for the connector.
	Queued prometheus.Gauge
	// Conflicts counts updates that found another revision.
	Conflicts prometheus.Counter
	// Aside is how many stored documents cannot be read.
	Aside prometheus.Gauge
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
		Polls:         counter("nvsentinel_csp_monitor_polls_total", "Readings of the provider."),
		PollErrors:    counter("nvsentinel_csp_monitor_poll_errors_total", "Readings of the provider that failed; the same window is read again."),
		Calls:         counter("nvsentinel_csp_monitor_api_requests_total", "Requests to the provider's API."),
		PollTime:      seconds("csp_health_monitor_csp_polling_duration_seconds", "How long one reading of the provider takes."),
		Round:         seconds("nvsentinel_csp_monitor_reconcile_duration_seconds", "How long one round takes, its reading included."),
		LastPoll:      gauge("nvsentinel_csp_monitor_last_poll_timestamp_seconds", "When the provider was read last."),
		Announcements: vector("csp_health_monitor_csp_events_received_total", "Announcements, by what they did to the stored maintenance.", "change"),
		Decisions:     vector("nvsentinel_csp_monitor_decisions_total", "What was decided about a maintenance, and why.", "step", "reason"),
		Waiting:       prometheus.NewGaugeVec(prometheus.GaugeOpts(opts("nvsentinel_csp_monitor_maintenances_waiting", "Maintenances with nothing to do now, by what they wait for.")), []string{"reason"}),
		Told:          vector("nvsentinel_csp_monitor_events_reported_total", "Events of maintenances that were acknowledged, or refused for good, by stage.", "stage"),
		Contested:     gauge("nvsentinel_csp_monitor_contested_machines", "Machines that several nodes claim and none is verified to be; none of these nodes is taken out of service or given back for their maintenance."),
		Unfinished:    gauge("nvsentinel_csp_monitor_maintenances_unfinished", "Maintenances that are not finished."),
		Queued:        gauge("nvsentinel_csp_monitor_pending_events", "Events that wait for the platform connector."),
		Conflicts:     counter("nvsentinel_csp_monitor_store_conflicts_total", "Writes that found another revision; what is stored is read again."),
		Aside:         gauge("nvsentinel_csp_monitor_maintenances_unreadable", "Stored maintenances that cannot be read and are passed over."),
		Forgotten:     counter("nvsentinel_csp_monitor_maintenances_expired_total", "Finished maintenances that were deleted after their retention."),
		Publisher: &report.Metrics{
			Published:   report.NewPublished(Prefix),
			Failures:    vector("nvsentinel_csp_monitor_publish_failures_total", "Requests the platform connector did not acknowledge, by gRPC code.", "code"),
			DeadLetters: counter("nvsentinel_csp_monitor_dead_letters_total", "Events the platform connector refused for good."),
		},
	}
	if r != nil {
		r.MustRegister(m.Polls, m.PollErrors, m.Calls, m.PollTime, m.Round, m.LastPoll, m.Announcements, m.Decisions, m.Waiting, m.Told,
			m.Contested, m.Unfinished, m.Queued, m.Conflicts, m.Aside, m.Forgotten, m.Publisher.Published, m.Publisher.Failures, m.Publisher.DeadLetters)
	}
	return m
}

// count shows what is open; the lock is held.
func (r *Reconciler) count() {
	r.Metrics.Unfinished.Set(float64(len(r.mirror)))
	r.Metrics.Queued.Set(float64(len(r.queue.entries)))
}
