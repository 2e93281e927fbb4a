// Package remind tells a store again what it has lost: faults that the node's
// own Node object names as unknown to the store, and that stand in the
// connector's durable fault set.
package remind

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/forwarder"
)

const (
	// again is how often the Node is looked at without any news.
	again = time.Minute
	// calm is the least time between two appends.
	calm     = 5 * time.Second
	deadline = 30 * time.Second
	// most bounds the faults of one append.
	most = 64
)

// Reminder appends what the store has lost. It asks nothing of the store: the
// annotation is fault-quarantine's answer to what it could not find.
type Reminder struct {
	// Node is the connector's own Node as it was last seen, or nil.
	Node func() *corev1.Node
	// Stored makes the records of standing faults again.
	Stored func(ids []string) []record.Record
	// Source is where they go, past the pipeline, through which they have gone.
	Source forwarder.Source
	Clock  clock.Clock
	Log    *slog.Logger

	appended prometheus.Counter
	wake     chan struct{}
}

// Register makes the reminder's metric.
func (r *Reminder) Register(registry prometheus.Registerer) {
	r.appended = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "platform_connector_reminded_total", Help: "Standing faults that were appended once more because the store had lost them.",
	})
	registry.MustRegister(r.appended)
}

// Waker returns what to call when the Node has changed.
func (r *Reminder) Waker() func() {
	r.wake = make(chan struct{}, 1)
	return func() {
		select {
		case r.wake <- struct{}{}:
		default: // it is woken already
		}
	}
}

// Run looks until ctx ends.
func (r *Reminder) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		var rest <-chan time.Time
		if r.look(ctx) {
			rest = r.Clock.After(calm)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-r.Clock.After(again):
		}
		if rest != nil {
			select {
			case <-ctx.Done():
			case <-rest:
			}
		}
	}
	return nil
}

// look appends once what is asked for, and says whether it did or tried to.
func (r *Reminder) look(ctx context.Context) bool {
	node := r.Node()
	ids := nodemark.Read(node).Unknown
	if len(ids) == 0 {
		return false
	}
	records := r.Stored(ids[:min(len(ids), most)])
	sink, open := r.Source.Opened()
	if len(records) == 0 || !open {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	if _, err := sink.Append(ctx, records); err != nil {
		r.Log.Warn("faults that the store has lost are not appended, trying again", "node", node.Name, "faults", len(records), "error", err)
		return true
	}
	r.appended.Add(float64(len(records)))
	r.Log.Info("faults that the store had lost are appended again", "node", node.Name, "faults", len(records))
	return true
}
