package confirmation

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/platform-connectors/internal/durable"
	"github.com/nvidia/nvsentinel/platform-connectors/signals"
)

// stateVersion is the version of the file's shape.
const stateVersion = 1

// state is the desk's file: what waits, and up to where of the spool that counts
// everything.
type state struct {
	Version int          `json:"version"`
	Epoch   string       `json:"epoch"`
	Index   uint64       `json:"index"`
	Set     *signals.Set `json:"set"`
}

// loadState reads the file and finds its place in the spool. What lies between its
// place and what is released was seen and changed nothing.
func loadState(path, epoch string, released, committed uint64) (s state, problem string) {
	fresh := state{Version: stateVersion, Epoch: epoch, Index: released, Set: &signals.Set{}}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fresh, ""
	}
	if err != nil {
		return fresh, fmt.Sprintf("it cannot be read: %v", err)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return fresh, fmt.Sprintf("it cannot be decoded: %v", err)
	}
	if s.Version != stateVersion || s.Set == nil {
		return fresh, fmt.Sprintf("its version is %d, not %d", s.Version, stateVersion)
	}
	if s.Epoch != epoch || s.Index < released || s.Index > committed {
		s.Epoch, s.Index = epoch, released
	}
	return s, ""
}

func (s state) save(path string) error {
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encoding what waits to be confirmed: %w", err)
	}
	if err := durable.Replace(path, b); err != nil {
		return fmt.Errorf("writing what waits to be confirmed: %w", err)
	}
	return nil
}

// Metrics of what waits.
type Metrics struct {
	waiting prometheus.Gauge
	ends    *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "platform_connector_unconfirmed",
			Help: "Faults that are stored as PERSIST_ONLY and wait to be confirmed.",
		}),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "platform_connector_unconfirmed_ended_total",
			Help: "Faults that waited to be confirmed, by how that ended.",
		}, []string{"how"}),
	}
	for _, end := range signals.Ends() {
		m.ends.WithLabelValues(string(end))
	}
	r.MustRegister(m.waiting, m.ends)
	return m
}

func (m *Metrics) count(ends []signals.End) {
	for _, end := range ends {
		m.ends.WithLabelValues(string(end)).Inc()
	}
}
