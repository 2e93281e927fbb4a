// Package replay carries the spool to the store, in order, and never gives up.
package replay

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/spool"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Bounds of one step.
const (
	// Batch is how many records go to the store at once.
	Batch = 256
	// deadline bounds one call of the store.
	deadline = 30 * time.Second
	slowest  = 15 * time.Second
)

// Retention of records on which nothing is to be done.
const Retention = 30 * 24 * time.Hour

// Spool is where the records come from.
type Spool interface {
	Read(after uint64, limit int) (entries []spool.Entry, upTo uint64, err error)
	Wait(ctx context.Context, after uint64) error
	Bounds() (released, committed uint64)
}

// Confirmer is told what the store has.
type Confirmer interface{ Confirm(index uint64) error }

// Source opens the store.
type Source interface {
	Store(ctx context.Context) (store.Store, error)
}

// Replay moves records from the spool to the store.
type Replay struct {
	Spool  Spool
	Reader Confirmer
	Store  Source
	// Identity is the last sighting of the node, for records accepted before
	// there was one.
	Identity func() record.NodeIdentity
	Clock    clock.Clock
	Log      *slog.Logger
	Metrics  *Metrics

	mu      sync.Mutex
	failing error
}

// Metrics of the replay.
type Metrics struct {
	appended *prometheus.CounterVec
	dead     prometheus.Counter
}

// NewMetrics registers the replay's metrics; dead counts refused records.
func NewMetrics(r prometheus.Registerer, dead prometheus.Counter) *Metrics {
	m := &Metrics{dead: dead, appended: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "platform_connector_appended_total",
		Help: "Records handed to the store, by result; error counts batches that are tried again.",
	}, []string{"result"})}
	for _, result := range []string{store.Appended.String(), store.Duplicate.String(), store.Refused.String(), "error"} {
		m.appended.WithLabelValues(result)
	}
	r.MustRegister(m.appended)
	return m
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
	s, err := r.Store.Store(ctx)
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
		r.Metrics.appended.WithLabelValues("error").Inc()
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
func (r *Replay) step(ctx context.Context, s store.Store, after uint64) (uint64, error) {
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
		if err := r.append(ctx, s, r.complete(entries)); err != nil {
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

// complete sets what is known only now.
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
		if rec.Event.ProcessingStrategy == record.PersistOnly {
			expire := r.Clock.Now().Add(Retention).UTC()
			rec.ExpireAt = &expire
		}
		out = append(out, rec)
	}
	return out
}

func (r *Replay) append(ctx context.Context, s store.Store, records []record.Record) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	results, err := s.Append(ctx, records)
	if err != nil {
		return fmt.Errorf("appending %d records: %w", len(records), err)
	}
	if len(results) != len(records) {
		return fmt.Errorf("appending %d records: the store answered for %d", len(records), len(results))
	}
	// First all dead letters, then the counting: a batch that is tried again
	// counts once.
	for i, result := range results {
		if result == store.Refused {
			if err := r.bury(ctx, s, records[i]); err != nil {
				return err
			}
		}
	}
	for _, result := range results {
		r.Metrics.appended.WithLabelValues(result.String()).Inc()
		if result == store.Refused {
			r.Metrics.dead.Inc()
		}
	}
	return nil
}
