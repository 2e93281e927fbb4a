package watch

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/check"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
)

// Prefix begins the names of this monitor's own metrics.
const Prefix = "nvsentinel_gpu_monitor"

// Metrics of the watch. Names without the prefix are the earlier NVSentinel's.
type Metrics struct {
	// Latency is the duration of calls to DCGM, by operation.
	Latency *prometheus.HistogramVec
	// Failures counts polls that failed, by reason.
	Failures *prometheus.CounterVec
	// Replaced counts client processes that were abandoned and replaced, by reason.
	Replaced *prometheus.CounterVec
	// Reported counts reported events, by check and reason.
	Reported *prometheus.CounterVec
	// Suppressed counts suppressed incidents, by error code.
	Suppressed     *prometheus.CounterVec
	Unknown        prometheus.Counter
	XIDs           prometheus.Counter
	Polls          prometheus.Counter
	MetadataErrors prometheus.Counter
	// Open is the number of open faults, by check. Latched is the number of faults of a
	// previous boot that DCGM still shows. Lost is the number of lost GPUs, Unwatched that of
	// GPUs that DCGM refuses to watch.
	Open                     *prometheus.GaugeVec
	Latched, Lost, Unwatched prometheus.Gauge
	// Refused is the number of watches that DCGM refuses, by kind of entity.
	Refused *prometheus.GaugeVec
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		Latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "dcgm_api_latency", Help: "Duration of calls to the DCGM library in seconds, by operation.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"operation_name"}),
		Failures:       vector("nvsentinel_gpu_monitor_poll_failures_total", "Polls of DCGM that failed and returned no data of any GPU, by reason.", "reason"),
		Replaced:       vector("nvsentinel_gpu_monitor_dcgm_client_restarts_total", "DCGM client processes that were abandoned and replaced, by reason.", "reason"),
		Reported:       vector("nvsentinel_gpu_monitor_events_total", "Events reported, by check and reason.", "check", "reason"),
		Suppressed:     vector("dcgm_health_check_suppressed_incidents", "Health incidents of DCGM that were suppressed, by error code.", "error_code"),
		Unknown:        counter("dcgm_health_check_unknown_system_skipped", "Health incidents of unknown DCGM health systems, which are reported under the check GpuUnknownWatch."),
		XIDs:           counter("nvsentinel_gpu_monitor_xids_total", "XIDs that DCGM reported."),
		Polls:          counter("nvsentinel_gpu_monitor_polls_total", "Polls of DCGM that succeeded."),
		MetadataErrors: counter("nvsentinel_gpu_monitor_metadata_errors_total", "Times that the GPU metadata file became missing or invalid."),
		Open: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "nvsentinel_gpu_monitor_open_faults", Help: "Faults that were reported and are still open, by check."},
			[]string{"check"}),
		Latched: prometheus.NewGauge(prometheus.GaugeOpts{Name: "nvsentinel_gpu_monitor_latched_faults",
			Help: "Faults of a previous boot that DCGM shows until its host engine restarts, and that are not reported again."}),
		Lost: prometheus.NewGauge(prometheus.GaugeOpts{Name: "nvsentinel_gpu_monitor_lost_gpus", Help: "GPUs that DCGM reports as lost."}),
		Unwatched: prometheus.NewGauge(prometheus.GaugeOpts{Name: "nvsentinel_gpu_monitor_unwatched_gpus",
			Help: "GPUs that DCGM lists but refuses to watch, because they are lost, disabled or detached."}),
		Refused: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "nvsentinel_gpu_monitor_refused_watches",
			Help: "Watches that DCGM refuses, by kind of entity: GPUs, MIG instances (for their XIDs) or NVSwitches (for their reset state)."}, []string{"entity"}),
	}
	for _, t := range []reading.Trouble{reading.Unreachable, reading.Hung} {
		m.Failures.WithLabelValues(string(t))
		m.Replaced.WithLabelValues(string(t))
	}
	m.Failures.WithLabelValues(string(reading.Unreadable))
	r.MustRegister(m.Latency, m.Failures, m.Replaced, m.Reported, m.Suppressed, m.Unknown, m.XIDs, m.Polls, m.MetadataErrors, m.Open, m.Latched, m.Lost, m.Unwatched, m.Refused)
	m.refused(nil)
	return m
}

// Called observes a call of DCGM's library.
func (m *Metrics) Called(operation string, took time.Duration) {
	m.Latency.WithLabelValues(operation).Observe(took.Seconds())
}

// WorkerAbandoned counts a process that was abandoned.
func (m *Metrics) WorkerAbandoned(t reading.Trouble) { m.Replaced.WithLabelValues(string(t)).Inc() }

// count counts the outcome of a poll.
func (m *Metrics) count(out check.Outcome, v check.View) {
	for _, reported := range out.Reports {
		m.Reported.WithLabelValues(reported.Event.CheckName, string(reported.Reason)).Inc()
	}
	for code, n := range out.Suppressed {
		m.Suppressed.WithLabelValues(code).Add(float64(n))
	}
	m.Unknown.Add(float64(out.Unknown))
	m.XIDs.Add(float64(len(out.NewXIDs)))
	m.show(out.State)
	if v.Reading == nil {
		m.Failures.WithLabelValues(string(v.Failure.Trouble)).Inc()
		return
	}
	if out.Unreadable {
		m.Failures.WithLabelValues(string(reading.Unreadable)).Inc()
		return
	}
	m.Polls.Inc()
	m.Latched.Set(float64(out.Latched))
	lost, unwatched := 0, 0
	for _, d := range v.Reading.Devices {
		if d.Status == reading.Lost {
			lost++
		}
		if d.Unwatched {
			unwatched++
		}
	}
	m.Lost.Set(float64(lost))
	m.Unwatched.Set(float64(unwatched))
	m.refused(v.Reading.Refusals)
}

// refused sets the number of watches that DCGM refuses.
func (m *Metrics) refused(all []reading.Refusal) {
	counts := map[reading.Kind]int{reading.GPU: 0, reading.Switch: 0, reading.GPUInstance: 0, reading.ComputeInstance: 0}
	for _, x := range all {
		counts[x.Entity.Kind]++
	}
	for kind, n := range counts {
		m.Refused.WithLabelValues(kind.String()).Set(float64(n))
	}
}

// show sets the number of open faults.
func (m *Metrics) show(s check.State) {
	m.Open.Reset()
	for _, f := range s.Faults {
		if f.Cleared {
			continue
		}
		m.Open.WithLabelValues(f.Check).Inc()
	}
}
