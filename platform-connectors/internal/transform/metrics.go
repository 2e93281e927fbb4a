package transform

import "github.com/prometheus/client_golang/prometheus"

// Metrics of the pipeline.
type Metrics struct {
	applied *prometheus.CounterVec
	failed  *prometheus.CounterVec
	partial *prometheus.CounterVec
	reloads *prometheus.CounterVec
	stale   prometheus.Gauge
}

// Reasons for incomplete metadata, as label values.
const (
	nodeUnknown = "node-unknown"
	noCapacity  = "metadata-full"
)

// Results of a reload, as label values.
const (
	taken   = "taken"
	refused = "refused"
)

// NewMetrics registers the metrics of the pipeline.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		applied: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_overrides_applied_total",
			Help: "Fields of events that an override rule changed, by rule and field.",
		}, []string{"rule_name", "field"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_override_evaluation_errors_total",
			Help: "Evaluations of override rules that failed and count as no match, by rule.",
		}, []string{"rule_name"}),
		partial: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_connector_events_with_incomplete_metadata_total",
			Help: "Events without the complete metadata of their node, by reason.",
		}, []string{"reason"}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_connector_pipeline_reloads_total",
			Help: "Reloads of changed pipeline files, by result.",
		}, []string{"result"}),
		stale: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nvsentinel_connector_pipeline_reload_failed",
			Help: "1 while the pipeline files are invalid and the previous pipeline is active, otherwise 0.",
		}),
	}
	for _, why := range []string{nodeUnknown, noCapacity} {
		m.partial.WithLabelValues(why)
	}
	for _, result := range []string{taken, refused} {
		m.reloads.WithLabelValues(result)
	}
	r.MustRegister(m.applied, m.failed, m.partial, m.reloads, m.stale)
	return m
}

func (m *Metrics) reloaded(err error) {
	if err != nil {
		m.reloads.WithLabelValues(refused).Inc()
		m.stale.Set(1)
		return
	}
	m.reloads.WithLabelValues(taken).Inc()
	m.stale.Set(0)
}

// count counts the changes of one stored record.
func (m *Metrics) count(d done) {
	for _, a := range d.notes.Applied {
		m.applied.WithLabelValues(a.Rule, a.Field).Inc()
	}
	for _, f := range d.notes.Failed {
		m.failed.WithLabelValues(f.Rule).Inc()
	}
	if d.notes.NodeUnknown {
		m.partial.WithLabelValues(nodeUnknown).Inc()
	}
	if d.notes.Cut {
		m.partial.WithLabelValues(noCapacity).Inc()
	}
}
