package forwarder

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodeclient"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/spool"
	"github.com/nvidia/nvsentinel/platform-connectors/pipeline"
)

// Tally counts repeats on their way from the spool to the sink. What is counted is
// not released from the spool before the record that stands for it is stored, so
// that a crash loses none of it.
type Tally struct {
	// Shape is what the pipeline makes of a record.
	Shape func(context.Context, record.Record) record.Record
	Clock clock.Clock

	counter *pipeline.Repeats // of the forwarder
	events  prometheus.Counter

	mu       sync.Mutex
	ends     nodeclient.Ends
	released bool // since the last take
}

// NewTally counts the repeats of a window; 0 counts none.
func NewTally(window time.Duration, t *Tally, r prometheus.Registerer) *Tally {
	t.counter = pipeline.NewRepeats(window)
	t.events = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "nvsentinel_connector_repeats_aggregated_total",
		Help: "Repeated events without a record of their own. The record of a later event contains their number.",
	})
	r.MustRegister(t.events)
	return t
}

// See takes the Node as it is now. When somebody has ended faults of it, what
// follows repeats nothing.
func (t *Tally) See(node *corev1.Node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.released = t.ends.See(node) || t.released
}

// take returns what of the spool's entries, whose records are given too, goes to
// the sink now, and whether somebody has ended faults of the node since the last time.
func (t *Tally) take(ctx context.Context, entries []spool.Entry, records []record.Record) (out []record.Record, released bool) {
	now := t.Clock.Now()
	out = make([]record.Record, 0, len(records))
	t.mu.Lock()
	released = t.released
	t.released = false
	t.mu.Unlock()
	if released {
		out = append(out, t.counter.Release(now)...)
	}
	if due, ok := t.counter.Due(); ok && !now.Before(due) {
		out = append(out, t.counter.Flush(now)...)
	}
	for i, r := range records {
		out = append(out, t.counter.Take(now, entries[i].Index, r, t.Shape(ctx, r).Event)...)
	}
	return out, released
}

// stored notes what the sink has, or refused.
func (t *Tally) stored(out, refused []record.Record) {
	for _, r := range refused {
		t.counter.Refused(r.ID)
	}
	for _, r := range out {
		n, _ := r.Event.Repeats()
		t.events.Add(float64(n - 1))
	}
}

// confirmed is up to where the spool may be released.
func (t *Tally) confirmed(upTo uint64) uint64 { return t.counter.Confirmed(upTo) }

// wait waits for news, but not longer than what is counted may wait.
func (t *Tally) wait(ctx context.Context, news func(context.Context) error) error {
	due, ok := t.counter.Due()
	if !ok {
		return news(ctx)
	}
	soon, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := t.Clock.NewTimer(due.Sub(t.Clock.Now()))
	defer timer.Stop()
	go func() {
		select {
		case <-timer.C():
			cancel()
		case <-soon.Done():
		}
	}()
	err := news(soon)
	if soon.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}
