package provider

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
	"github.com/nvidia/nvsentinel/internal/retry"
)

// Pace of the health checks.
const (
	healthInterval = 5 * time.Second
	healthTimeout  = 5 * time.Second
)

// Health is what is known of a plugin.
type Health struct {
	// Available is false when the plugin can not be reached or reports that it does
	// not serve.
	Available bool
	// Detail is why, for people.
	Detail string
	// declined: the plugin itself reports that it does not serve.
	declined bool
}

// Watch asks a plugin for its health, at the start and then all the time.
type Watch struct {
	plugin *Plugin
	clock  clock.Clock
	log    *slog.Logger
	gauge  prometheus.Gauge

	mu   sync.Mutex
	last Health
}

// NewWatch makes the watch of a plugin and registers its metric.
func NewWatch(p *Plugin, c clock.Clock, log *slog.Logger, r prometheus.Registerer) *Watch {
	w := &Watch{plugin: p, clock: c, log: log, last: Health{Available: true, Detail: "not checked yet"}}
	w.gauge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "nvsentinel_janitor_plugin_available", Help: "1 while the provider plugin passes its health check, otherwise 0.",
		ConstLabels: prometheus.Labels{"plugin": p.endpoint.Host},
	})
	r.MustRegister(w.gauge)
	return w
}

// Run asks until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	for {
		if now := w.plugin.Health(ctx); ctx.Err() == nil {
			w.note(now)
		}
		if !retry.Sleep(ctx, w.clock, healthInterval) {
			return nil
		}
	}
}

// note keeps an answer and logs a change. Ready reports the new state by then.
func (w *Watch) note(now Health) {
	available := 0.0
	if now.Available {
		available = 1
	}
	w.gauge.Set(available)
	w.plugin.declined.Store(now.declined)
	w.mu.Lock()
	before := w.last
	w.last = now
	w.mu.Unlock()
	if before != now {
		w.log.Info("plugin health changed", "plugin", w.plugin.endpoint.Host, "available", now.Available, "detail", now.Detail)
	}
}

// Ready is a readiness check that names a plugin that is away. It is ok all the
// same: nothing is gained by taking the janitor away too.
func (w *Watch) Ready() (bool, string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last.Available {
		return true, w.last.Detail
	}
	return true, "plugin " + w.plugin.endpoint.Host + " is not available: " + w.last.Detail
}

// Health asks the plugin once. A plugin without the health service is available
// while it can be reached.
func (p *Plugin) Health(ctx context.Context) Health {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	client := healthv1.NewHealthClient(p.conn)
	for _, service := range []string{v1.CSPPluginService_ServiceDesc.ServiceName, ""} {
		answer, err := client.Check(ctx, &healthv1.HealthCheckRequest{Service: service})
		switch code := status.Code(err); {
		case code == codes.OK && answer.GetStatus() == healthv1.HealthCheckResponse_SERVING:
			return Health{Available: true, Detail: "serving"}
		case code == codes.OK && answer.GetStatus() != healthv1.HealthCheckResponse_SERVICE_UNKNOWN:
			return Health{Detail: "its status is " + answer.GetStatus().String(), declined: true}
		case code == codes.Unimplemented:
			return Health{Available: true, Detail: "reachable, without a health service"}
		case code != codes.OK && code != codes.NotFound:
			return Health{Detail: status.Convert(err).Message()}
		}
	}
	return Health{Available: true, Detail: "reachable, without the health of its service"}
}
