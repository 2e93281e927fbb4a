package reconciler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/node-drainer/decision"
)

// Metrics of drains.
type Metrics struct {
	registry  prometheus.Registerer
	steps     *prometheus.CounterVec
	processed *prometheus.CounterVec
	pods      *prometheus.CounterVec
	calls     prometheus.Histogram
	drains    prometheus.Histogram
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		registry: r,
		steps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_node_drainer_steps_total", Help: "Steps of drains, by step and reason.",
		}, []string{"step", "reason"}),
		processed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "node_drainer_events_processed_total", Help: "Records whose drain has ended, by final status of the drain.",
		}, []string{"drain_status"}),
		pods: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_node_drainer_pod_eviction_attempts_total", Help: "Attempts to evict or delete a Pod, by step and result.",
		}, []string{"step", "result"}),
		calls: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "node_drainer_pod_eviction_duration_seconds", Help: "Duration of one eviction or deletion request in seconds.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 14),
		}),
		drains: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "nvsentinel_node_drainer_drain_duration_seconds", Help: "Time in seconds from the fault to the end of a successful drain.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 18),
		}),
	}
	r.MustRegister(m.steps, m.processed, m.pods, m.calls, m.drains)
	return m
}

func (m *Metrics) watch(nodes, back func() int, overdue func() map[decision.Reason]int) {
	m.registry.MustRegister(overdueCollector{overdue}, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "nvsentinel_node_drainer_deferred_drains", Help: "Nodes whose drain is deferred while faults of other nodes are evaluated and quarantined.",
	}, func() float64 { return float64(back()) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "nvsentinel_node_drainer_active_drains", Help: "Nodes with a drain that is pending, in progress, or maintained until the remediation.",
	}, func() float64 { return float64(nodes()) }))
}

var overdueNodes = prometheus.NewDesc("nvsentinel_node_drainer_overdue_drains",
	"Nodes with Pods that block the drain for so long that manual intervention is required, by reason.", []string{"reason"}, nil)

// overdueCollector exposes the overdue nodes, with a series for every reason.
type overdueCollector struct {
	count func() map[decision.Reason]int
}

// Describe implements prometheus.Collector.
func (overdueCollector) Describe(out chan<- *prometheus.Desc) { out <- overdueNodes }

// Collect implements prometheus.Collector.
func (o overdueCollector) Collect(out chan<- prometheus.Metric) {
	count := o.count()
	for _, why := range decision.BlockedReasons() {
		out <- prometheus.MustNewConstMetric(overdueNodes, prometheus.GaugeValue, float64(count[why]), string(why))
	}
}

func (m *Metrics) stepped(s decision.Step) {
	m.steps.WithLabelValues(string(s.Kind), string(s.Why)).Inc()
	if s.Kind == decision.LeaveAlone {
		return // ends no drain
	}
	for _, st := range s.Updates {
		if st.Final() {
			m.processed.WithLabelValues(string(st.Status.Status)).Inc()
		}
	}
}

func (m *Metrics) tookAway(k decision.Kind, r decision.Result, took time.Duration) {
	m.pods.WithLabelValues(string(k), string(r)).Inc()
	m.calls.Observe(took.Seconds())
}

func (m *Metrics) drained(records []record.Record, s decision.Step, now time.Time) {
	for _, r := range records {
		if status, ok := s.Updated(r, now); ok && status.UserPodsEvictionStatus.Status == record.EvictionSucceeded {
			m.drains.Observe(now.Sub(r.CreatedAt).Seconds())
		}
	}
}
