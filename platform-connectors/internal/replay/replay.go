// Package replay carries the spool to the store, in order, and never gives up.
package replay

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/spool"
)

// Bounds of one step.
const (
	// Batch is how many records go to the store at once.
	Batch   = 256
	slowest = 15 * time.Second
)

// Spool is where the records come from.
type Spool interface {
	Read(after uint64, limit int) (entries []spool.Entry, upTo uint64, err error)
	Wait(ctx context.Context, after uint64) error
	Bounds() (released, committed uint64)
}

// Confirmer is told what the store has.
type Confirmer interface{ Confirm(index uint64) error }

// Replay moves records from the spool to the store.
type Replay struct {
	Spool   Spool
	Reader  Confirmer
	Carrier *Carrier
	// Identity is the last sighting of the node, for records accepted before
	// there was one.
	Identity func() record.NodeIdentity
	Clock    clock.Clock
	Log      *slog.Logger

	mu      sync.Mutex
	failing error
}

// Ready says whether the store took the last batch.
func (r *Replay) Ready() (bool, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failing != nil {
		return false, r.failing.Error()
	}
	return true, ""
}

// Run replays until ctx ends. The order is kept: a batch that fails is tried
// again before anything behind it.
func (r *Replay) Run(ctx context.Context) error {
	s, err := r.Carrier.Source.Sink(ctx)
	if err != nil {
		return unlessEnded(ctx, err)
	}
	pace := backoff.NewExponentialBackOff()
	pace.InitialInterval, pace.MaxInterval = 200*time.Millisecond, slowest
	pace.Reset()
	at, _ := r.Spool.Bounds()
	for ctx.Err() == nil {
		if err := r.Spool.Wait(ctx, at); err != nil {
			return unlessEnded(ctx, err)
		}
		upTo, err := r.step(ctx, s, at)
		r.note(err)
		if err == nil {
			at = upTo
			pace.Reset()
			continue
		}
		r.Carrier.Metrics.appended.WithLabelValues("error").Inc()
		select {
		case <-ctx.Done():
		case <-r.Clock.After(pace.NextBackOff()):
		}
	}
	return nil
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

// note logs the first failure of a row and its end.
func (r *Replay) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && r.failing == nil {
		r.Log.Warn("the store did not take records; the spool keeps them", "error", err)
	}
	if err == nil && r.failing != nil {
		r.Log.Info("the store takes records again")
	}
	r.failing = err
}

// step carries one batch and returns where the next begins.
func (r *Replay) step(ctx context.Context, s Sink, after uint64) (uint64, error) {
	entries, upTo, err := r.Spool.Read(after, Batch)
	if err != nil {
		return after, err
	}
	if crashpoint.Sabotaged("platform-connectors/release-before-append") {
		if err := r.Reader.Confirm(upTo); err != nil {
			return after, err
		}
		crashpoint.Here("platform-connectors/released")
	}
	if len(entries) > 0 {
		err := r.Carrier.carry(ctx, s, r.complete(entries))
		if err != nil && !crashpoint.Sabotaged("platform-connectors/drop-unstored") {
			return after, err
		}
	}
	crashpoint.Here("platform-connectors/appended")
	if err := r.Reader.Confirm(upTo); err != nil {
		return after, err
	}
	crashpoint.Here("platform-connectors/released")
	return upTo, nil
}

// complete sets the machine where none was known yet.
func (r *Replay) complete(entries []spool.Entry) []record.Record {
	out := make([]record.Record, 0, len(entries))
	for _, e := range entries {
		rec := e.Record
		if rec.Node == (record.NodeIdentity{}) {
			// The machine is the one this disk is in. Its boot may be another by
			// now, so none is claimed.
			rec.Node = r.Identity()
			rec.Node.BootID = ""
		}
		out = append(out, rec)
	}
	return out
}
