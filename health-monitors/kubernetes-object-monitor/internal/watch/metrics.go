package watch

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/machine"
	"github.com/nvidia/nvsentinel/internal/report"
)

// Prefix begins the names of this monitor's own metrics; the others are the earlier NVSentinel's.
const Prefix = "nvsentinel_object_monitor"

// Metrics of the monitor; those that begin with k8s_ are those of ADR-011.
type Metrics struct {
	// Matches counts started matches.
	Matches *prometheus.CounterVec
	// EvaluationErrors counts evaluations without a result.
	EvaluationErrors *prometheus.CounterVec
	// ReconciliationErrors counts reconciliations of objects that failed.
	ReconciliationErrors *prometheus.CounterVec
	// Evaluations counts evaluated predicates.
	Evaluations prometheus.Counter
	// Missing is 1 for a kind that a policy names and the API server does not serve.
	Missing *prometheus.GaugeVec
	// ReloadFailed is 1 while the policy file is invalid and the previous policies are
	// active.
	ReloadFailed prometheus.Gauge
	// Refused counts matches that could not start because the state is full.
	Refused *prometheus.CounterVec
	// PublishErrors counts events that were not acknowledged, by gRPC code or result of
	// the event.
	PublishErrors *prometheus.CounterVec
	// Publisher are the counters of the publisher.
	Publisher *report.Metrics
}

// Reasons of Metrics.ReconciliationErrors.
const (
	// reasonCheckpoint: the ConfigMap `kubernetes-object-monitor-state` could not be written, or it has no
	// capacity for a further fault, so the object is evaluated again later. Action: check the right of the monitor
	// to update the ConfigMap. If `nvsentinel_object_monitor_faults_refused_total` grows, narrow the policy that it
	// names.
	reasonCheckpoint = "state"
	// reasonCache: an object could not be read from the cache of the monitor, so it is evaluated again later.
	// Action: none for single errors. If the number grows, restart the monitor and report the error.
	reasonCache = "cache"
	// reasonWatch: a kind could not be listed or watched, so its policies are evaluated on the objects that were
	// read last. Action: add the right that the log names (`kubernetes-object-monitor rbac` prints the roles), or
	// restore the API server.
	reasonWatch = "watch"
)

// NewMetrics registers the metrics; size is called at every scrape.
func NewMetrics(r prometheus.Registerer, size func() (open, waiting int)) *Metrics {
	opts := func(name, help string) prometheus.Opts { return prometheus.Opts{Name: name, Help: help} }
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts(opts(name, help)), labels)
	}
	m := &Metrics{
		Matches: vector("k8s_object_monitor_policy_matches_total", "Times that a policy started to match an object, by policy, node and kind of object.", "policy_name", "node", "resource_kind"),
		EvaluationErrors: vector("k8s_object_monitor_policy_evaluation_errors_total",
			"Evaluations without a result, by policy and type of error: cel_error, lookup_error or node_association_error.", "policy_name", "error_type"),
		ReconciliationErrors: vector("k8s_object_monitor_reconciliation_errors_total", "Reconciliations of objects that failed and are retried, by kind of object and type of error.", "resource_kind", "error_type"),
		Refused:              vector("nvsentinel_object_monitor_faults_refused_total", "Matches that could not start because the state, or the part of a namespace in it, is full, by policy and scope. They are retried.", "policy_name", "scope"),
		PublishErrors:        vector("k8s_object_monitor_health_events_publish_errors_total", "Events that were not acknowledged, by policy and type of error: the gRPC code of the request, or rejected or retry as the result of the event.", "policy_name", "error_type"),
		Evaluations:          prometheus.NewCounter(prometheus.CounterOpts(opts("nvsentinel_object_monitor_policy_evaluations_total", "Predicates of policies that were evaluated."))),
		Missing:              prometheus.NewGaugeVec(prometheus.GaugeOpts(opts("nvsentinel_object_monitor_kind_missing", "1 while the API server does not serve a kind that a policy names, otherwise 0.")), []string{"resource_kind"}),
		ReloadFailed:         prometheus.NewGauge(prometheus.GaugeOpts(opts("nvsentinel_object_monitor_policies_reload_failed", "1 while the policy file is invalid and the previous policies are active, otherwise 0."))),
		Publisher: &report.Metrics{
			Published:   report.NewPublished(Prefix),
			Failures:    vector("nvsentinel_object_monitor_publish_failures_total", "Requests that the platform connector did not acknowledge, by gRPC code.", "code"),
			DeadLetters: prometheus.NewCounter(prometheus.CounterOpts(opts("nvsentinel_object_monitor_dead_letters_total", "Events that the platform connector rejected permanently."))),
		},
	}
	open := prometheus.NewGaugeFunc(prometheus.GaugeOpts(opts("nvsentinel_object_monitor_open_faults", "Matches of policies that have started and not ended.")), func() float64 { n, _ := size(); return float64(n) })
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts(opts("nvsentinel_object_monitor_pending_events", "Events that wait for the platform connector.")), func() float64 { _, n := size(); return float64(n) })
	r.MustRegister(m.Matches, m.EvaluationErrors, m.ReconciliationErrors, m.Evaluations, m.Missing, m.ReloadFailed, m.PublishErrors, m.Refused, open, waiting,
		m.Publisher.Published, m.Publisher.Failures, m.Publisher.DeadLetters)
	return m
}

// Count makes a connector's client that counts failures by policy.
func (m *Metrics) Count(c protos.PlatformConnectorClient) protos.PlatformConnectorClient {
	return &counted{c, m.PublishErrors}
}

type counted struct {
	protos.PlatformConnectorClient
	errors *prometheus.CounterVec
}

// HealthEventOccurredV1 sends a batch.
func (c *counted) HealthEventOccurredV1(ctx context.Context, in *protos.HealthEvents, opts ...grpc.CallOption) (*emptypb.Empty, error) {
	out, err := c.PlatformConnectorClient.HealthEventOccurredV1(ctx, in, opts...)
	if err != nil {
		for _, e := range in.GetEvents() {
			c.errors.WithLabelValues(e.GetCheckName(), status.Code(err).String()).Inc()
		}
	}
	return out, err
}

// HealthEventOccurredV2 sends a batch.
func (c *counted) HealthEventOccurredV2(ctx context.Context, in *protos.HealthEvents, opts ...grpc.CallOption) (*protos.HealthEventResults, error) {
	out, err := c.PlatformConnectorClient.HealthEventOccurredV2(ctx, in, opts...)
	for i, e := range in.GetEvents() {
		outcome := protos.HealthEventOutcome_HEALTH_EVENT_OUTCOME_ACCEPTED
		if i < len(out.GetResults()) {
			outcome = out.GetResults()[i].GetOutcome()
		}
		switch code := status.Code(err); {
		case code == codes.Unimplemented: // a connector of an older version, which gets the other method
		case err != nil:
			c.errors.WithLabelValues(e.GetCheckName(), code.String()).Inc()
		case outcome == protos.HealthEventOutcome_HEALTH_EVENT_OUTCOME_REJECTED:
			c.errors.WithLabelValues(e.GetCheckName(), "rejected").Inc()
		case outcome != protos.HealthEventOutcome_HEALTH_EVENT_OUTCOME_ACCEPTED:
			c.errors.WithLabelValues(e.GetCheckName(), "retry").Inc()
		}
	}
	return out, err
}

// refused counts a fault for which the state has no capacity.
func (m *Metrics) refused(policy string, err error) {
	switch {
	case errors.Is(err, machine.ErrShare):
		m.Refused.WithLabelValues(policy, "namespace").Inc()
	case errors.Is(err, machine.ErrFull):
		m.Refused.WithLabelValues(policy, "all").Inc()
	}
}
