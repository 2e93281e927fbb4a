package forwarder

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodeclient"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// This part of the package appends to a store again what it has lost: faults that the node's own
// Node object names as unknown to the store, and that stand in the connector's durable fault
// set.

const (
	// again is how often the Node is looked at without any news.
	replayInterval = time.Minute
	// calm is the least time between two appends.
	replayMinInterval = 5 * time.Second
	replayTimeout     = 30 * time.Second
	// most bounds the faults of one append.
	maxReplayed = 64
)

// Replayer appends what the store has lost. It asks nothing of the store: the
// annotation is fault-quarantine's answer to what it could not find.
type Replayer struct {
	// Node is the connector's own Node as it was last seen, or nil.
	Node func() *corev1.Node
	// Stored makes the records of standing faults again.
	Stored func(ids []string) []record.Record
	// Sink is where they go, past the pipeline, through which they have gone.
	Sink Sink
	// Client writes Events; nil without Kubernetes.
	Client *nodeclient.Client
	Clock  clock.Clock
	Log    *slog.Logger

	appended, refused prometheus.Counter
	wake              retry.Wake
	// done are the ids of faults that the store refused and that are reported.
	done map[string]bool
}

// Register makes the reminder's metric.
func (r *Replayer) Register(registry prometheus.Registerer) {
	r.appended = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "nvsentinel_connector_fault_resyncs_total", Help: "Open faults that were appended again because the store had lost them.",
	})
	r.refused = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "nvsentinel_connector_fault_resyncs_refused_total", Help: "Open faults that the store had lost and refuses to store again. Each becomes a dead letter and is reported in an Event of the Node.",
	})
	r.done = map[string]bool{}
	registry.MustRegister(r.appended, r.refused)
}

// Waker returns what to call when the Node has changed.
func (r *Replayer) Waker() func() {
	r.wake = retry.NewWake()
	return r.wake.Call
}

// Run looks until ctx ends.
func (r *Replayer) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		var rest <-chan time.Time
		if r.replayOnce(ctx) {
			rest = r.Clock.After(replayMinInterval)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-r.Clock.After(replayInterval):
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

// replayOnce appends once what is asked for, and reports whether it did or tried to.
func (r *Replayer) replayOnce(ctx context.Context) bool {
	node := r.Node()
	ids := slices.DeleteFunc(slices.Clone(nodemark.Read(node).Unknown), func(id string) bool { return r.done[id] })
	if len(ids) == 0 {
		return false
	}
	records := r.Stored(ids[:min(len(ids), maxReplayed)])
	records = slices.DeleteFunc(records, func(f record.Record) bool { return r.done[f.ID] })
	if len(records) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	results, err := r.Sink.Append(ctx, records)
	if err != nil {
		r.Log.Warn("replay of faults lost by the store failed, retrying", "node", node.Name, "faults", len(records), "error", err)
		return true
	}
	stored := 0
	for i, f := range records {
		switch results[i] {
		case store.Counted: // beyond the node's quota: it is not stored, and brought again
			continue
		case store.Refused:
		default:
			stored++
			continue
		}
		if err := r.report(ctx, node, f); err != nil {
			r.Log.Warn("report of a rejected fault failed, retrying", "node", node.Name, "id", f.ID, "error", err)
		}
	}
	if stored > 0 {
		r.appended.Add(float64(stored))
		r.Log.Info("faults lost by the store appended again", "node", node.Name, "faults", stored)
	}
	return true
}

// report keeps a fault that the store refuses as a dead letter, and reports on the Node
// that nothing but a person ends its quarantine.
func (r *Replayer) report(ctx context.Context, node *corev1.Node, f record.Record) error {
	body, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("encoding record %s: %w", f.ID, err)
	}
	text := "The store lost fault " + f.ID + " of check " + f.Event.CheckName + " and rejects it now because its id is stored with other content. " +
		"The fault is still open, and the node stays in quarantine until manual intervention: see docs/tasks/back-up-and-restore.md"
	deadLetter := store.DeadLetter{ID: f.ID, Source: DeadLettersOf(node.Name), Reason: text, Body: body, At: r.Clock.Now().UTC()}
	if err := r.Sink.Dead(ctx, deadLetter); err != nil {
		return fmt.Errorf("storing the dead letter of record %s: %w", f.ID, err)
	}
	if r.Client != nil {
		err := nodeclient.CountFault(ctx, r.Client.Events, node, nodeclient.FaultEvent{
			Component: Component, Reason: "FaultRefused", Message: text, Times: 1, Last: r.Clock.Now(),
		})
		if err != nil {
			return fmt.Errorf("writing the Event about record %s: %w", f.ID, err)
		}
	}
	r.done[f.ID] = true
	r.refused.Inc()
	r.Log.Error("fault lost by the store rejected and dead-lettered", "node", node.Name, "id", f.ID, "check", f.Event.CheckName)
	return nil
}
