package watch

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/health-monitors/nic-health-monitor/fabric"
	"github.com/nvidia/nvsentinel/health-monitors/nic-health-monitor/internal/sysfs"
	"github.com/nvidia/nvsentinel/health-monitors/nic-health-monitor/judge"
)

// Prefix begins the name of every metric of this monitor.
const Prefix = "nic_health_monitor"

// Metrics of the watch.
type Metrics struct {
	// Told counts events by check and reason.
	Told *prometheus.CounterVec
	// Devices is the number of watched cards, Open that of open faults.
	Devices, Open prometheus.Gauge
	// LookErrors counts different failures in a row of looks, Unreadable ports whose
	// state could not be read.
	LookErrors, Unreadable prometheus.Counter
	// Looks measures a look, in seconds.
	Looks prometheus.Histogram
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		Told: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: Prefix + "_health_events_total", Help: "Events put into the outbox, by check and reason.",
		}, []string{"check", "reason"}),
		Devices: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: Prefix + "_devices_discovered", Help: "Network cards that the last look found and that are watched.",
		}),
		Open: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: Prefix + "_open_faults", Help: "Faults that were reported and have not ended.",
		}),
		LookErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: Prefix + "_state_check_errors_total", Help: "Failures to look at the network cards.",
		}),
		Unreadable: prometheus.NewCounter(prometheus.CounterOpts{
			Name: Prefix + "_unreadable_ports_total", Help: "Looks at a port or card whose state could not be read.",
		}),
		Looks: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: Prefix + "_poll_cycle_duration_seconds", Help: "Time that a look at all network cards took.",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5},
		}),
	}
	for _, check := range fabric.Checks() {
		m.Told.WithLabelValues(check, string(judge.Began))
	}
	r.MustRegister(m.Told, m.Devices, m.Open, m.LookErrors, m.Unreadable, m.Looks)
	return m
}

func (m *Metrics) look(r fabric.Reading, s sysfs.Stats, took time.Duration) {
	m.Devices.Set(float64(len(r.Devices)))
	m.Unreadable.Add(float64(s.Unreadable))
	m.Looks.Observe(took.Seconds())
}

func (m *Metrics) open(memory judge.Memory) { m.Open.Set(float64(len(memory.Open))) }
