package reconciler

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
)

// Metrics of runs.
type Metrics struct {
	steps, runs *prometheus.CounterVec
}

// NewMetrics registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		steps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_repair_chain_steps_total", Help: "Steps of runs that reached a state, by chain, step and state.",
		}, []string{"chain", "step", "state"}),
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_repair_chain_runs_ended_total", Help: "Runs that ended, by chain and reason.",
		}, []string{"chain", "reason"}),
	}
	r.MustRegister(m.steps, m.runs)
	return m
}

func (m *Metrics) step(run *v1alpha1.RepairRun, s v1alpha1.StepStatus) {
	m.steps.WithLabelValues(run.Spec.Chain, s.Name, string(s.State)).Inc()
}

func (m *Metrics) ended(run *v1alpha1.RepairRun, reason string) {
	m.runs.WithLabelValues(run.Spec.Chain, reason).Inc()
}
