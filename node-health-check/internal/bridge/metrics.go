package bridge

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/internal/report"
)

// Metrics of the bridge.
type Metrics struct {
	published *prometheus.CounterVec
	failures  *prometheus.CounterVec
}

// NewMetrics registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		published: report.NewPublished("nvsentinel_node_health_check"),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_node_health_check_publish_failures_total", Help: "Requests that the platform connector did not acknowledge, by gRPC code.",
		}, []string{"code"}),
	}
	r.MustRegister(m.published, m.failures)
	return m
}

// count counts one request.
func (m *Metrics) count(e *protos.HealthEvent, err error) {
	var refused *report.Refused
	switch {
	case errors.As(err, &refused):
		m.failures.WithLabelValues(codes.InvalidArgument.String()).Inc()
		return
	case err != nil:
		m.failures.WithLabelValues(status.Code(err).String()).Inc()
		return
	}
	m.published.WithLabelValues(e.GetProcessingStrategy().String()).Inc()
}
