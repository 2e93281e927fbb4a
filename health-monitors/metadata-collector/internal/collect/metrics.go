package collect

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/health-monitors/metadata-collector/inventory"
)

// Prefix begins the name of every metric of this program.
const Prefix = "metadata_collector"

// Metrics of the collector.
type Metrics struct {
	// Writes counts written files, by reason.
	Writes *prometheus.CounterVec
	// Failures counts looks that failed.
	Failures prometheus.Counter
	// GPUs is how many the file has.
	GPUs prometheus.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		Writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: Prefix + "_writes_total", Help: "Times that the GPU metadata file was written, by reason.",
		}, []string{"reason"}),
		Failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: Prefix + "_failures_total", Help: "Looks at the GPUs that failed and left the file as it was.",
		}),
		GPUs: prometheus.NewGauge(prometheus.GaugeOpts{Name: Prefix + "_gpus", Help: "GPUs in the metadata file."}),
	}
	for _, why := range []inventory.Reason{
		inventory.First, inventory.Rebooted, inventory.Driver, inventory.GPUs, inventory.Links, inventory.Other,
	} {
		m.Writes.WithLabelValues(string(why))
	}
	r.MustRegister(m.Writes, m.Failures, m.GPUs)
	return m
}
