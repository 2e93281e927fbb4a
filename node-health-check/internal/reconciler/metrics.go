package reconciler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/node-health-check/triage"
)

// Metrics have medik8s' names. Their label name is the node's; nodes are as many as a
// cluster has.
type Metrics struct {
	oldObjects *prometheus.CounterVec
	ongoing    *prometheus.GaugeVec
	duration   *prometheus.HistogramVec
	nodes      *prometheus.GaugeVec
	storm      *prometheus.GaugeVec
	aside      *prometheus.GaugeVec

	running map[string]map[series]bool // by check
}

type series struct{ node, namespace, kind string }

// NewMetrics registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	labels := []string{"name", "namespace", "remediation"}
	m := &Metrics{
		oldObjects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodehealthcheck_old_remediation_cr", Help: "Remediations that were there for more than 48 hours, by node.",
		}, []string{"name", "namespace"}),
		ongoing: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nodehealthcheck_ongoing_remediation", Help: "1 while a node has a remediation of a kind.",
		}, labels),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "nodehealthcheck_unhealthy_node_duration_seconds", Help: "Time from a remediation's beginning until its node was healthy again and it was gone.",
			Buckets: []float64{30, 60, 120, 180, 240, 300, 600, 1200, 2400, 3600},
		}, labels),
		nodes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nvsentinel_node_health_check_nodes", Help: "Nodes of a check: observed, healthy, and required for a remediation to begin.",
		}, []string{"check", "state"}),
		storm: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nvsentinel_node_health_check_storm_recovery_active", Help: "1 while storm recovery holds a check's remediations back.",
		}, []string{"check"}),
		aside: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nvsentinel_node_health_check_undecodable", Help: "1 while a check has a field that can not be decoded, and nothing is done for its nodes.",
		}, []string{"check"}),
		running: map[string]map[series]bool{},
	}
	r.MustRegister(m.oldObjects, m.ongoing, m.duration, m.nodes, m.storm, m.aside)
	return m
}

func (m *Metrics) old(node, namespace string) { m.oldObjects.WithLabelValues(node, namespace).Inc() }

// count shows what a pass left behind.
func (m *Metrics) count(check string, s v1alpha1.NodeHealthCheckStatus, p triage.Plan, now time.Time) {
	for _, e := range p.Ended {
		m.duration.WithLabelValues(e.Node, e.Namespace, e.Kind).Observe(now.Sub(e.Started).Seconds())
	}
	running := map[series]bool{}
	for _, u := range s.UnhealthyNodes {
		for _, r := range u.Remediations {
			running[series{u.Name, r.Resource.Namespace, r.Resource.Kind}] = true
		}
	}
	m.show(check, running)
	m.aside.DeleteLabelValues(check)
	for name, n := range map[string]int{"observed": p.Census.Observed, "healthy": p.Census.Healthy, "required": p.Census.Required} {
		m.nodes.WithLabelValues(check, name).Set(float64(n))
	}
	active := 0.0
	if s.StormRecoveryActive != nil && *s.StormRecoveryActive {
		active = 1
	}
	m.storm.WithLabelValues(check).Set(active)
}

// show sets the gauge of ongoing remediations: 1 for what runs, 0 for what no longer
// does.
func (m *Metrics) show(check string, running map[series]bool) {
	for s := range m.running[check] {
		if !running[s] {
			m.ongoing.WithLabelValues(s.node, s.namespace, s.kind).Set(0)
		}
	}
	for s := range running {
		m.ongoing.WithLabelValues(s.node, s.namespace, s.kind).Set(1)
	}
	m.running[check] = running
}

// setAside shows that a check can not be decoded, in place of what was counted before.
func (m *Metrics) setAside(check string) {
	m.forget(check)
	m.aside.WithLabelValues(check).Set(1)
}

// forget drops what only a check has.
func (m *Metrics) forget(check string) {
	m.show(check, nil)
	delete(m.running, check)
	m.nodes.DeletePartialMatch(prometheus.Labels{"check": check})
	m.storm.DeleteLabelValues(check)
	m.aside.DeleteLabelValues(check)
}
