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
	// Latency is that of DCGM's calls, by call.
	Latency *prometheus.HistogramVec
	// Failures counts looks that failed, by trouble.
	Failures *prometheus.CounterVec
	// Replaced counts the processes that were given up, by trouble.
	Replaced *prometheus.CounterVec
	// Told counts events, by check and reason.
	Told *prometheus.CounterVec
	// Suppressed counts incidents, by code.
	Suppressed     *prometheus.CounterVec
	Unknown        prometheus.Counter
	XIDs           prometheus.Counter
	Looks          prometheus.Counter
	MetadataErrors prometheus.Counter
	// Open is the number of open faults, by check; Latched that of those which DCGM
	// still shows from a past boot; Lost that of GPUs that are lost, Unwatched that of
	// GPUs that DCGM refuses to watch.
	Open                     *prometheus.GaugeVec
	Latched, Lost, Unwatched prometheus.Gauge
	// Refused is the number of entities of which DCGM refuses a watch, by their kind.
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
			Name: "dcgm_api_latency", Help: "Seconds that calls of DCGM's library took.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"operation_name"}),
		Failures:       vector("nvsentinel_gpu_monitor_poll_failures_total", "Looks at DCGM that failed and said nothing of any GPU, by reason.", "reason"),
		Replaced:       vector("nvsentinel_gpu_monitor_dcgm_client_restarts_total", "Processes talking to DCGM that were given up, by reason.", "reason"),
		Told:           vector("nvsentinel_gpu_monitor_events_total", "Events told, by check and reason.", "check", "reason"),
		Suppressed:     vector("dcgm_health_check_suppressed_incidents", "Incidents that were suppressed, by code.", "error_code"),
		Unknown:        counter("dcgm_health_check_unknown_system_skipped", "Incidents of health systems that are not known, which are told under GpuUnknownWatch."),
		XIDs:           counter("nvsentinel_gpu_monitor_xids_total", "XIDs that DCGM saw."),
		Looks:          counter("nvsentinel_gpu_monitor_polls_total", "Looks at DCGM that answered."),
		MetadataErrors: counter("nvsentinel_gpu_monitor_metadata_errors_total", "Times that the GPU metadata file became missing or broken."),
		Open: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "nvsentinel_gpu_monitor_open_faults", Help: "Faults that were told and have not ended, by check."},
			[]string{"check"}),
		Latched: prometheus.NewGauge(prometheus.GaugeOpts{Name: "nvsentinel_gpu_monitor_latched_faults",
			Help: "Faults of a past boot that DCGM shows until its host engine is started again, and that are not told again."}),
		Lost: prometheus.NewGauge(prometheus.GaugeOpts{Name: "nvsentinel_gpu_monitor_lost_gpus", Help: "GPUs that DCGM says are lost."}),
		Unwatched: prometheus.NewGauge(prometheus.GaugeOpts{Name: "nvsentinel_gpu_monitor_unwatched_gpus",
			Help: "GPUs that DCGM lists and refuses to watch, because they are lost, disabled or detached."}),
		Refused: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "nvsentinel_gpu_monitor_refused_watches",
			Help: "Watches that DCGM refuses, by entity: GPUs, MIG instances (their XIDs), NVSwitches (whether they need a reset)."}, []string{"entity"}),
	}
	for _, t := range []reading.Trouble{reading.Unreachable, reading.Hung} {
		m.Failures.WithLabelValues(string(t))
		m.Replaced.WithLabelValues(string(t))
	}
	m.Failures.WithLabelValues(string(reading.Unreadable))
	r.MustRegister(m.Latency, m.Failures, m.Replaced, m.Told, m.Suppressed, m.Unknown, m.XIDs, m.Looks, m.MetadataErrors, m.Open, m.Latched, m.Lost, m.Unwatched, m.Refused)
	m.refused(nil)
	return m
}

// Called observes a call of DCGM's library.
func (m *Metrics) Called(operation string, took time.Duration) {
	m.Latency.WithLabelValues(operation).Observe(took.Seconds())
}

// Gone counts a process that was given up.
func (m *Metrics) Gone(t reading.Trouble) { m.Replaced.WithLabelValues(string(t)).Inc() }

// count counts what a look came to.
func (m *Metrics) count(out check.Outcome, v check.View) {
	for _, told := range out.Told {
		m.Told.WithLabelValues(told.Event.CheckName, string(told.Reason)).Inc()
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
	m.Looks.Inc()
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

// refused shows the watches that DCGM refuses.
func (m *Metrics) refused(all []reading.Refusal) {
	counts := map[reading.Kind]int{reading.GPU: 0, reading.Switch: 0, reading.GPUInstance: 0, reading.ComputeInstance: 0}
	for _, x := range all {
		counts[x.Entity.Kind]++
	}
	for kind, n := range counts {
		m.Refused.WithLabelValues(kind.String()).Set(float64(n))
	}
}

// show shows what is open.
func (m *Metrics) show(s check.State) {
	m.Open.Reset()
	for _, f := range s.Faults {
		if f.Cleared {
			continue
		}
		m.Open.WithLabelValues(f.Check).Inc()
	}
}
