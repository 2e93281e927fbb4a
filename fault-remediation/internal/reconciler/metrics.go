package reconciler

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// Metrics of the service.
type Metrics struct {
	steps       *prometheus.CounterVec
	processed   *prometheus.CounterVec
	unsupported *prometheus.CounterVec
	errors      *prometheus.CounterVec
	calls       *prometheus.CounterVec
	objects     *prometheus.CounterVec
	orphans     prometheus.Counter
	generate    prometheus.Histogram
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		steps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_fault_remediation_steps_total", Help: "Steps of remediations, by reason of the decision and by dry run (true, false).",
		}, []string{"reason", "dry_run"}),
		processed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fault_remediation_events_processed_total", Help: "Records handled, by result for the maintenance object: created, skipped or waiting.",
		}, []string{"cr_status"}),
		unsupported: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fault_remediation_unsupported_actions_total", Help: "Records whose recommended action requires manual intervention, by action.",
		}, []string{"action"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fault_remediation_processing_errors_total", Help: "Failures of the reconciler, by failed operation.",
		}, []string{"error_type"}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_fault_remediation_manual_interventions_required_total", Help: "Remediations that ended because manual intervention is required, by reason of the decision.",
		}, []string{"reason"}),
		objects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_fault_remediation_maintenance_objects_created_total", Help: "Maintenance objects created, by kind.",
		}, []string{"kind"}),
		orphans: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nvsentinel_fault_remediation_orphaned_claims_total", Help: "Claims that were removed from their Nodes because their maintenance object does not exist.",
		}),
		generate: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "fault_remediation_cr_generate_duration_seconds", Help: "Time from the decision to the creation of the maintenance object in seconds.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}),
	}
	registry.MustRegister(m.steps, m.processed, m.unsupported, m.errors, m.calls, m.objects, m.orphans, m.generate)
	return m
}

// RegisterRepeatOffenders registers the number of Nodes with the label of repeat offenders. A standby
// replica does not know it.
func RegisterRepeatOffenders(registry prometheus.Registerer, nodes corelisters.NodeLister, synced func() (bool, string)) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "nvsentinel_fault_remediation_repeat_offender_nodes", Help: "Nodes with the label of repeat offenders, because their machine required too many remediations.",
	}, func() float64 {
		known, _ := synced()
		n := 0
		for _, key := range []string{nodemark.RepeatOffenderLabel, nodemark.FormerRepeatOffenderLabel} {
			list, err := nodes.List(labels.SelectorFromSet(labels.Set{key: nodemark.RepeatOffenderTrue}))
			known, n = known && err == nil, n+len(list)
		}
		if !known {
			return math.NaN()
		}
		return float64(n)
	}))
}

func (m *Metrics) reserved(step decision.Step, records []record.Record) {
	m.steps.WithLabelValues(string(step.Reason), "false").Inc()
	switch step.Reason { //nolint:exhaustive // the others have no counter of their own
	case decision.CoveredByReboot:
		m.processed.WithLabelValues("skipped").Add(float64(len(step.Writes)))
	case decision.HumanAction:
		for _, w := range step.Writes {
			m.unsupported.WithLabelValues(wireAction(w.ID, records)).Inc()
		}
	}
}

// wireAction keeps the label bounded: custom actions are CUSTOM.
func wireAction(id string, records []record.Record) string {
	for _, r := range records {
		if r.ID == id {
			return string(r.Event.Action())
		}
	}
	return string(record.ActionUnknown)
}

func (m *Metrics) waiting(why decision.Reason) {
	m.steps.WithLabelValues(string(why), "false").Inc()
	if why == decision.WaitObject {
		m.processed.WithLabelValues("waiting").Inc()
	}
}

func (m *Metrics) created(kind string, took time.Duration) {
	m.steps.WithLabelValues(string(decision.Create), "false").Inc()
	m.processed.WithLabelValues("created").Inc()
	m.objects.WithLabelValues(kind).Inc()
	m.generate.Observe(took.Seconds())
}

func (m *Metrics) calledHuman(reason string) {
	m.calls.WithLabelValues(reason).Inc()
}

func (m *Metrics) failed(what string) {
	m.errors.WithLabelValues(what).Inc()
}
