package sink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodeclient"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/platform-connectors/conditions"
)

const (
	// resync is how often the Node is compared without any change.
	resync = time.Minute
	// calm is the least time between two writes, should another hand fight over
	// a condition.
	calm     = time.Second
	slowest  = 30 * time.Second
	deadline = 15 * time.Second
)

// View is what the push makes true.
type View struct {
	Conditions []corev1.NodeCondition
	Notices    []conditions.Notice
}

// View is the present wish of the fault set. While the set is incomplete only faults are
// shown: a condition that shows more stays as it is.
func (f *Fold) View() View {
	f.mu.Lock()
	defer f.mu.Unlock()
	desired := f.state.Set.Desired()
	if !f.state.Complete {
		desired = conditions.Faulty(desired)
	}
	return View{desired, slices.Clone(f.state.Set.Notices)}
}

// Stored makes the records of standing faults again; see conditions.Set.
func (f *Fold) Stored(ids []string) []record.Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Set.Stored(ids)
}

// RemoveReported takes written notices out of the set.
func (f *Fold) RemoveReported(written []conditions.Notice) error {
	f.work.Lock()
	defer f.work.Unlock()
	s := f.current()
	s.Set.RemoveReported(written)
	return f.publish(s)
}

// Push makes the Node's conditions match the fault set. It owns the types in the set and
// touches no other.
type Push struct {
	View       func() View
	OnReported func([]conditions.Notice) error
	Node       func() *corev1.Node
	Client     *nodeclient.Client
	Clock      clock.Clock
	Log        *slog.Logger
	Metrics    *Metrics

	wake   retry.Wake
	outage retry.Outage
}

// Waker returns what to call when the set or the Node has changed.
func (p *Push) Waker() func() {
	p.wake = retry.NewWake()
	return p.wake.Call
}

// Run compares and writes until ctx ends: whenever it is woken and once a minute.
func (p *Push) Run(ctx context.Context) error {
	pace := backoff.NewExponentialBackOff()
	pace.InitialInterval, pace.MaxInterval = calm, slowest
	pace.Reset()
	for ctx.Err() == nil {
		wrote, err := p.step(ctx)
		p.note(err)
		switch {
		case err != nil:
			retry.Sleep(ctx, p.Clock, pace.NextBackOff())
			continue
		case wrote:
			retry.Sleep(ctx, p.Clock, calm)
		}
		pace.Reset()
		select {
		case <-ctx.Done():
		case <-p.wake:
		case <-p.Clock.After(resync):
		}
	}
	return nil
}

// note logs the first failure of a row and its end.
func (p *Push) note(err error) {
	switch begins, ends := p.outage.Note(err); {
	case begins:
		p.Log.Warn("node fault update in Kubernetes failed, retrying", "error", err)
	case ends:
		p.Log.Info("node fault update in Kubernetes recovered")
	}
}

// step makes one comparison and writes the difference.
func (p *Push) step(ctx context.Context) (wrote bool, err error) {
	node := p.Node()
	if node == nil {
		return false, nil // a wake-up comes when it is seen
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	view := p.View()
	changes := conditions.Changes(node.Status.Conditions, view.Conditions, p.Clock.Now())
	err = errors.Join(p.patch(ctx, node.Name, changes), p.writeEvents(ctx, node, view.Notices))
	return len(changes)+len(view.Notices) > 0, err
}

// patch writes the conditions and counts it.
func (p *Push) patch(ctx context.Context, node string, changes []corev1.NodeCondition) error {
	if len(changes) == 0 {
		return nil
	}
	err := Patch(ctx, p.Client.Nodes, node, changes)
	p.Metrics.Updated(err)
	return err
}

// Patch writes conditions in one strategic merge patch: they merge by type, so
// the others stay as they are whatever happens meanwhile, and one that is sent twice
// changes nothing. A JSON patch, which knows places only, would have to test the whole
// list for both, and costs the API server no less (docs/reference/benchmarks.md). Without any it
// does nothing.
func Patch(ctx context.Context, nodes nodeclient.Nodes, node string, changes []corev1.NodeCondition) error {
	if len(changes) == 0 {
		return nil
	}
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": changes}})
	if err != nil {
		return fmt.Errorf("encoding conditions: %w", err)
	}
	_, err = nodes.Patch(ctx, node, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("patching the conditions of node %s: %w", node, err)
	}
	return nil
}

// writeEvents writes the waiting notices as Kubernetes Events and takes those that
// were written out of the set.
func (p *Push) writeEvents(ctx context.Context, node *corev1.Node, notices []conditions.Notice) error {
	var written []conditions.Notice
	var failure error
	for _, n := range notices {
		fault := nodeclient.FaultEvent{Component: n.Agent, Reason: n.Reason, Message: n.Message, Times: 1, Last: p.Clock.Now()}
		failure = nodeclient.CountFault(ctx, p.Client.Events, node, fault)
		if p.Metrics.EventWritten(failure); failure != nil {
			break
		}
		written = append(written, n)
	}
	if len(written) == 0 {
		return failure
	}
	return errors.Join(failure, p.OnReported(written))
}

// Results of an API call, as label values.
const (
	success = "success"
	failed  = "failed"
)

// Metrics of the Kubernetes sink.
type Metrics struct {
	folds    *prometheus.CounterVec
	updates  *prometheus.CounterVec
	events   *prometheus.CounterVec
	faults   prometheus.Gauge
	complete prometheus.Gauge
}

// NewMetrics registers the sink's metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		folds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nvsentinel_connector_fault_set_updates_total",
			Help: "Events applied to the fault set of the node, by change of the set.",
		}, []string{"change"}),
		updates: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "k8s_platform_connector_node_condition_update_total",
			Help: "Patches of the conditions of the Node, by status.",
		}, []string{"status"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "k8s_platform_connector_node_event_operations_total",
			Help: "Kubernetes Events written for the Node, by status.",
		}, []string{"status"}),
		faults: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nvsentinel_connector_open_faults",
			Help: "Open faults in the fault set of the node.",
		}),
		complete: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nvsentinel_connector_fault_set_complete",
			Help: "1 if the fault set of the node is complete, 0 until it is rebuilt from the store.",
		}),
	}
	for _, status := range []string{success, failed} {
		m.updates.WithLabelValues(status)
		m.events.WithLabelValues(status)
	}
	r.MustRegister(m.folds, m.updates, m.events, m.faults, m.complete)
	return m
}

func (m *Metrics) folded(c conditions.Change) { m.folds.WithLabelValues(string(c)).Inc() }

func (m *Metrics) show(s state) {
	m.faults.Set(float64(s.Set.Faults()))
	m.complete.Set(0)
	if s.Complete {
		m.complete.Set(1)
	}
}

// Updated counts one patch of a node's conditions.
func (m *Metrics) Updated(err error) {
	if err != nil {
		m.updates.WithLabelValues(failed).Inc()
		return
	}
	m.updates.WithLabelValues(success).Inc()
}

// EventWritten counts one Kubernetes Event about a node.
func (m *Metrics) EventWritten(err error) {
	if err != nil {
		m.events.WithLabelValues(failed).Inc()
		return
	}
	m.events.WithLabelValues(success).Inc()
}
