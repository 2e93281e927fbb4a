package transform

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/internal/durable"
	"github.com/nvidia/nvsentinel/platform-connectors/pipeline"
)

// stateVersion is the version of the file's shape.
const stateVersion = 1

// state is what waits, which is the follower's file, and up to where of the spool that
// counts everything. The place is not kept: a life begins with what the store may not have
// yet, and evaluates it by the same rules as the forwarder.
type state struct {
	Version int               `json:"version"`
	Set     *pipeline.Signals `json:"set"`
	Index   uint64            `json:"-"`
}

// loadState reads the file.
func loadState(path string) (s state, problem string) {
	fresh := state{Version: stateVersion, Set: &pipeline.Signals{}}
	switch found, err := durable.Load(path, durable.Versions{Oldest: stateVersion, Newest: stateVersion}, &s); {
	case err != nil:
		return fresh, err.Error()
	case !found:
		return fresh, ""
	case s.Set == nil:
		return fresh, "the file has no set of faults"
	}
	return s, ""
}

// Discard takes the file away where no rule can come: nobody sees what recovers, and
// a later life would confirm it.
func Discard(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing pending confirmations: %w", err)
	}
	return nil
}

// ConfirmationMetrics of what waits.
type ConfirmationMetrics struct {
	waiting prometheus.Gauge
	ends    *prometheus.CounterVec
}

// NewConfirmationMetrics registers the metrics.
func NewConfirmationMetrics(r prometheus.Registerer) *ConfirmationMetrics {
	m := &ConfirmationMetrics{
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nvsentinel_connector_unconfirmed_faults",
			Help: "Faults that are stored as PERSIST_ONLY and wait for a second signal.",
		}),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_connector_unconfirmed_faults_resolved_total",
			Help: "Faults that waited for a second signal, by outcome.",
		}, []string{"outcome"}),
	}
	for _, end := range pipeline.WaitEnds() {
		m.ends.WithLabelValues(string(end))
	}
	r.MustRegister(m.waiting, m.ends)
	return m
}

func (m *ConfirmationMetrics) count(ends []pipeline.WaitEnd) {
	for _, end := range ends {
		m.ends.WithLabelValues(string(end)).Inc()
	}
}
