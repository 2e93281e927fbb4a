package watch

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/internal/source"
	"github.com/nvidia/nvsentinel/health-monitors/xid"
)

// Prefix begins the names of this monitor's own metrics; the others are the earlier NVSentinel's.
const Prefix = "nvsentinel_syslog_monitor"

// Metrics of the watch.
type Metrics struct {
	// XIDs counts reported XIDs by code; codes outside the catalogue are "unknown".
	XIDs *prometheus.CounterVec
	// SXIDs counts reported SXIDs by code; codes outside the catalogue are "unknown".
	SXIDs *prometheus.CounterVec
	// FallenOff counts GPUs reported off the bus.
	FallenOff prometheus.Counter
	// Patterns counts events that patterns created, Repeats matches without an event
	// of their own, by pattern.
	Patterns, Repeats *prometheus.CounterVec
	// Resets counts acknowledged GPU resets by outcome.
	Resets *prometheus.CounterVec
	// Cancellations counts codes that another code cleared.
	Cancellations *prometheus.CounterVec
	// Counted counts events of event storms that were aggregated and not reported
	// individually.
	Counted prometheus.Counter
	// InitialRead counts faults that the first read of the log has found, by
	// outcome.
	InitialRead *prometheus.CounterVec
	// Gaps counts reported gaps.
	Gaps prometheus.Counter
	// Lines counts the lines that were read.
	Lines prometheus.Counter
	// ForeignLines counts relevant lines that were ignored because a program wrote them or
	// made the kernel quote them.
	ForeignLines prometheus.Counter
	// Unsendable counts events that could not be encoded; none is expected.
	Unsendable prometheus.Counter
	// Reboots counts reboots detected by a changed boot ID.
	Reboots prometheus.Counter
	// Recoveries counts recoveries decided after a reboot, by check and reason.
	Recoveries *prometheus.CounterVec
	// MetadataErrors counts changes of the metadata file to missing or invalid.
	MetadataErrors prometheus.Counter
	// PassErrors counts different failures in consecutive reads of the log.
	PassErrors prometheus.Counter
}

// NewMetrics registers the metrics; counts is called at every scrape.
func NewMetrics(r prometheus.Registerer, counts func() source.Counts) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		XIDs:           vector("syslog_health_monitor_xid_errors", "XIDs reported, by code.", "err_code"),
		SXIDs:          vector("syslog_health_monitor_sxid_errors", "SXIDs reported, by code.", "err_code"),
		FallenOff:      counter("syslog_health_monitor_gpu_fallen_errors", "GPUs reported to have fallen off the bus."),
		Patterns:       vector("nvsentinel_syslog_monitor_pattern_events_total", "Events created by patterns for the kernel log, by pattern.", "pattern"),
		Repeats:        vector("nvsentinel_syslog_monitor_pattern_repeats_total", "Matches of patterns without an event of their own, because they were counted, fell into a pause, or resulted from a GPU off the bus, by pattern.", "pattern"),
		Resets:         vector("nvsentinel_syslog_monitor_gpu_resets_total", "GPU resets that the reset tool reported, by outcome.", "outcome"),
		Cancellations:  vector("syslog_health_monitor_cancellations_emitted_total", "Error codes that were cleared by another error code, by source and target code.", "source_error_code", "target_error_code"),
		Counted:        counter("nvsentinel_syslog_monitor_events_aggregated_total", "Events of event storms that were aggregated and not reported individually."),
		InitialRead:    vector("nvsentinel_syslog_monitor_initial_read_faults_total", "Faults in the log from before the first read, by outcome: reported, or too-old for --look-back.", "outcome"),
		Gaps:           counter("nvsentinel_syslog_monitor_gap_events_total", "Gaps in the kernel log that were reported."),
		Lines:          counter("nvsentinel_syslog_monitor_lines_total", "Lines of the kernel log that were read."),
		ForeignLines:   counter("nvsentinel_syslog_monitor_foreign_lines_total", "Relevant lines that were ignored because a program wrote them or made the kernel quote them."),
		Unsendable:     counter("nvsentinel_syslog_monitor_encode_failures_total", "Events that could not be encoded and were dropped."),
		Reboots:        counter("nvsentinel_syslog_monitor_reboots_total", "Reboots detected by a changed boot ID."),
		Recoveries:     vector("nvsentinel_syslog_monitor_recoveries_total", "Recoveries decided after a reboot, by check and reason.", "check", "reason"),
		MetadataErrors: counter("nvsentinel_syslog_monitor_metadata_errors_total", "Times that the GPU metadata file became missing or invalid."),
		PassErrors:     counter("nvsentinel_syslog_monitor_watch_failures_total", "Failures to watch the kernel log."),
	}
	for code := range xid.Builtin {
		m.XIDs.WithLabelValues(strconv.Itoa(code))
	}
	for _, outcome := range []string{"reported", "too-old"} {
		m.InitialRead.WithLabelValues(outcome)
	}
	r.MustRegister(m.XIDs, m.SXIDs, m.FallenOff, m.Patterns, m.Repeats, m.Resets, m.Cancellations, m.Counted, m.InitialRead, m.Gaps, m.Lines, m.ForeignLines, m.Unsendable, m.Reboots, m.Recoveries, m.MetadataErrors, m.PassErrors)
	countSource(r, counts)
	return m
}

// countSource registers the metrics that the source counts itself.
func countSource(r prometheus.Registerer, counts func() source.Counts) {
	met := func(name, help string, value func(source.Counts) int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help},
			func() float64 { return float64(value(counts())) })
	}
	r.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "nvsentinel_syslog_monitor_ring_buffer_bytes",
			Help: "Size of the kernel ring buffer in bytes, or 0 if it is unknown or another source is read."},
			func() float64 { return float64(counts().Ring) }),
		met("nvsentinel_syslog_monitor_gaps_total", "Gaps in the kernel log where lines were lost before they were read.",
			func(c source.Counts) int64 { return c.Gaps }),
		met("nvsentinel_syslog_monitor_lost_lines_total", "Lines lost in gaps of the kernel log, as far as their number is known.",
			func(c source.Counts) int64 { return c.Lost }),
		met("nvsentinel_syslog_monitor_reader_restarts_total", "Restarts of the journal reader after it ended.",
			func(c source.Counts) int64 { return c.Restarts }),
		met("nvsentinel_syslog_monitor_truncated_lines_total", "Lines that were truncated because they were too long.",
			func(c source.Counts) int64 { return c.Cut }),
		met("nvsentinel_syslog_monitor_malformed_records_total", "Kernel records that could not be parsed.",
			func(c source.Counts) int64 { return c.Malformed }),
	)
}
