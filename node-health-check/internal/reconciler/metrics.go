package reconciler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/node-health-check/triage"
)

// Metrics of the controller. Those that begin with nodehealthcheck_ have the names of medik8s,
// and their label name is the name of the node. Its values are bounded by the nodes of the cluster.
type Metrics struct {
	oldObjects  *prometheus.CounterVec
	ongoing     *prometheus.GaugeVec
	duration    *prometheus.HistogramVec
	nodes       *prometheus.GaugeVec
	storm       *prometheus.GaugeVec
	undecodable *prometheus.GaugeVec

	running map[string]map[series]bool // by check
}

type series struct{ node, namespace, kind string }

// NewMetrics registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	labels := []string{"name", "namespace", "remediation"}
	m := &Metrics{
		oldObjects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodehealthcheck_old_remediation_cr", Help: "Remediations that existed for more than 48 hours, by node and namespace.",
		}, []string{"name", "namespace"}),
		ongoing: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nodehealthcheck_ongoing_remediation", Help: "1 while a node has a remediation of the kind, otherwise 0.",
		}, labels),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "nodehealthcheck_unhealthy_node_duration_seconds", Help: "Time in seconds from the start of a remediation until the node was healthy again and the remediation was deleted.",
			Buckets: []float64{30, 60, 120, 180, 240, 300, 600, 1200, 2400, 3600},
		}, labels),
		nodes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nvsentinel_node_health_check_nodes", Help: "Nodes of a check, by state: observed, healthy, or required to be healthy for a remediation to start.",
		}, []string{"check", "state"}),
		storm: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nvsentinel_node_health_check_storm_recovery_active", Help: "1 while storm recovery prevents new remediations of a check, otherwise 0.",
		}, []string{"check"}),
		undecodable: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nvsentinel_node_health_check_undecodable", Help: "1 while a field of a check cannot be decoded, so that its nodes are not remediated.",
		}, []string{"check"}),
		running: map[string]map[series]bool{},
	}
	r.MustRegister(m.oldObjects, m.ongoing, m.duration, m.nodes, m.storm, m.undecodable)
	return m
}

func (m *Metrics) old(node, namespace string) { m.oldObjects.WithLabelValues(node, namespace).Inc() }

// count updates the metrics of a check after a reconciliation.
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
	m.undecodable.DeleteLabelValues(check)
	for name, n := range map[string]int{"observed": p.Census.Observed, "healthy": p.Census.Healthy, "required": p.Census.Required} {
		m.nodes.WithLabelValues(check, name).Set(float64(n))
	}
	active := 0.0
	if s.StormRecoveryActive != nil && *s.StormRecoveryActive {
		active = 1
	}
	m.storm.WithLabelValues(check).Set(active)
}

// show sets the gauge of ongoing remediations: 1 for those that run, 0 for those that have
// ended.
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

// setUndecodable records that a check cannot be decoded, and removes its other series.
func (m *Metrics) setUndecodable(check string) {
	m.forget(check)
	m.undecodable.WithLabelValues(check).Set(1)
}

// forget removes the series of a check.
func (m *Metrics) forget(check string) {
	m.show(check, nil)
	delete(m.running, check)
	m.nodes.DeletePartialMatch(prometheus.Labels{"check": check})
	m.storm.DeleteLabelValues(check)
	m.undecodable.DeleteLabelValues(check)
}
