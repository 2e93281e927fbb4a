// Package forwarder sends the spool to the store, in order, and never gives up.
package forwarder

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/platform-connectors/conditions"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/spool"
	places "github.com/nvidia/nvsentinel/platform-connectors/internal/upstream"
	"github.com/nvidia/nvsentinel/platform-connectors/pipeline"
)

// Bounds of one step.
const (
	// Batch is how many records go to the store at once.
	Batch   = 256
	slowest = 15 * time.Second
	// pace is the least time between the beginnings of two batches that are not
	// full: on a node with its store on the same disk each one's commit delays
	// the fsyncs of the spool, for which publishers wait.
	pace = 10 * time.Millisecond
)

// Spool is where the records come from.
type Spool interface {
	Read(after uint64, limit int) (entries []spool.Entry, upTo uint64, err error)
	Wait(ctx context.Context, after uint64) error
	Bounds() (released, committed uint64)
}

// Confirmer is called with what the store has.
type Confirmer interface{ Confirm(index uint64) error }

// Forwarder moves records from the spool to the store.
type Forwarder struct {
	Spool  Spool
	Reader Confirmer
	Sender *Sender
	// Identity is the node's machine as it was seen last, for records accepted before
	// there was one.
	Identity func() record.NodeIdentity
	// Tally counts what need not be stored one by one.
	Tally *Tally
	Clock clock.Clock
	Log   *slog.Logger

	ahead      *batch    // of Run
	ready      *outgoing // of step, until the sink has it
	afterReset bool      // of the next that is not empty

	outage retry.Outage

	mu   sync.Mutex
	wait conditions.Backlog
}

// batch is what the spool holds after a place.
type batch struct {
	after, upTo uint64
	entries     []spool.Entry
	err         error
	read        chan struct{} // closed when the fields above are set
}

// outgoing is what becomes of a batch. It is decided once, however often it has to
// be sent.
type outgoing struct {
	records []record.Record
	upTo    uint64
	// afterReset: somebody has ended faults of the node, so none of it repeats anything.
	afterReset bool
}

// Ready reports whether the store took the last batch.
func (r *Forwarder) Ready() (bool, string) { return r.outage.Ready() }

// Run forwards until ctx ends. The order is kept: a batch that fails is tried
// again before anything behind it.
func (r *Forwarder) Run(ctx context.Context) error {
	patience := backoff.NewExponentialBackOff()
	patience.InitialInterval, patience.MaxInterval = 200*time.Millisecond, slowest
	patience.Reset()
	at, _ := r.Spool.Bounds()
	defer r.stopReading()
	for ctx.Err() == nil {
		if err := r.Tally.wait(ctx, func(ctx context.Context) error { return r.Spool.Wait(ctx, at) }); err != nil {
			return unlessEnded(ctx, err)
		}
		calm := r.Clock.After(pace)
		upTo, err := r.step(ctx, at)
		r.note(err)
		r.end(err)
		if err != nil {
			calm = r.Clock.After(patience.NextBackOff())
		} else {
			at = upTo
			patience.Reset()
			if r.full(at) {
				continue
			}
		}
		select {
		case <-ctx.Done():
		case <-calm:
		}
	}
	return nil
}

// full reports whether a whole batch waits after a place.
func (r *Forwarder) full(after uint64) bool {
	_, committed := r.Spool.Bounds()
	return committed >= after+Batch
}

// take reads the batch after a place, unless it was read ahead.
func (r *Forwarder) take(after uint64) ([]spool.Entry, uint64, error) {
	b := r.ahead
	r.ahead = nil
	if b != nil {
		<-b.read
		if b.after == after && b.err == nil {
			return b.entries, b.upTo, nil
		}
	}
	return r.Spool.Read(after, Batch)
}

// stopReading ends the reading ahead; the spool is closed after this.
func (r *Forwarder) stopReading() {
	if r.ahead != nil {
		<-r.ahead.read
	}
}

// readAhead reads the batch after a place while the one before is on its way to
// the store. One that is not full can wait: it grows meanwhile.
func (r *Forwarder) readAhead(after uint64) {
	if !r.full(after) {
		return
	}
	b := &batch{after: after, read: make(chan struct{})}
	r.ahead = b
	go func() {
		defer close(b.read)
		b.entries, b.upTo, b.err = r.Spool.Read(after, Batch)
	}()
}

// unlessEnded forgets the error of a wait that the end of ctx cut short.
func unlessEnded(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return fmt.Errorf("waiting for work: %w", err)
	}
}

// Backlog is what the sink has not taken yet of what was begun to be sent.
func (r *Forwarder) Backlog() conditions.Backlog {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wait
}

// begin notes that records are on their way, end that the sink has them.
func (r *Forwarder) begin(records []record.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wait = conditions.Backlog{Since: r.Clock.Now(), Delivered: r.wait.Delivered, Fatal: slices.ContainsFunc(records, func(x record.Record) bool {
		return x.Acts() && x.IsFault() && x.Event.IsFatal
	})}
}

func (r *Forwarder) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.wait = conditions.Backlog{Delivered: r.wait.Delivered || !r.wait.Since.IsZero()}
	} else if !r.wait.Since.IsZero() {
		r.wait.Problem = err.Error()
	}
}

// note counts failures, and logs the first one of a row and its end.
func (r *Forwarder) note(err error) {
	if err != nil {
		r.Sender.Metrics.appended.WithLabelValues("error").Inc()
	}
	switch begins, ends := r.outage.Note(err); {
	case begins:
		r.Log.Warn("store append failed, records stay in the write-ahead log", "error", err)
	case ends:
		r.Log.Info("store append recovered")
	}
}

// step sends one batch and returns where the next begins.
func (r *Forwarder) step(ctx context.Context, after uint64) (uint64, error) {
	if r.ready == nil {
		entries, upTo, err := r.take(after)
		if err != nil {
			return after, err
		}
		r.readAhead(upTo)
		records, reset := r.Tally.take(ctx, entries, r.complete(entries))
		r.ready = &outgoing{records, upTo, reset || r.afterReset}
		r.afterReset = r.ready.afterReset && len(records) == 0
		if len(r.ready.records) > 0 {
			r.begin(r.ready.records)
		}
	}
	upTo := r.ready.upTo
	if r.ready.afterReset {
		ctx = places.WithReset(ctx)
	}
	if len(r.ready.records) > 0 {
		refused, err := r.Sender.sendAll(ctx, r.ready.records)
		if err != nil {
			return after, err
		}
		r.Tally.stored(r.ready.records, refused)
	}
	crashpoint.Here("platform-connectors/appended")
	if err := r.Reader.Confirm(r.Tally.confirmed(upTo)); err != nil {
		return after, err
	}
	r.ready = nil
	crashpoint.Here("platform-connectors/released")
	return upTo, nil
}

// Try computes what sending computes of one record, and sends nothing. A lookup
// that would have to wait for anybody is done without.
func (r *Forwarder) Try(rec record.Record) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	entries := []spool.Entry{{Index: 1, Record: rec}}
	out := r.complete(entries)
	alone := Tally{Shape: r.Tally.Shape, Clock: r.Clock, counter: pipeline.NewRepeats(pipeline.MaxWindow)}
	records, _ := alone.take(ctx, entries, out)
	_, _ = json.Marshal(records) // one that cannot be sent is found when it is
}

// complete sets the machine where none was known yet.
func (r *Forwarder) complete(entries []spool.Entry) []record.Record {
	out := make([]record.Record, 0, len(entries))
	for _, e := range entries {
		rec := e.Record
		crashpoint.DieOf(rec.Event.Message)
		if rec.Node == (record.NodeIdentity{}) {
			// The machine is the one this disk is in. Its boot may be another one
			// now, so none is claimed.
			rec.Node = r.Identity()
			rec.Node.BootID = ""
		}
		out = append(out, rec)
	}
	return out
}
