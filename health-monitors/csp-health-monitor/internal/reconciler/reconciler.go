// Package reconciler is the loop of csp-health-monitor: it asks the provider, keeps what was
// announced, decides what follows, and reports it.
//
// The store is the truth and the reconciler's own copy a mirror of what is not finished.
// Every write compares revisions, so that a replica that has lost the lease writes
// nothing; after a write that failed the mirror is read again. What is to be reported
// becomes part of its document first, is sent then, and is marked as sent when the connector
// has acknowledged it: a death in between sends the same event again.
package reconciler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/maintenance"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/lifecycle"
	"github.com/nvidia/nvsentinel/internal/kubelet"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Options of a reconciler.
type Options struct {
	Source announcement.Source
	Origin lifecycle.Origin
	Store  store.Maintenances
	// Fleet reads the cluster's machines.
	Fleet func() Fleet
	// Kubelet looks once more whether the kubelet of a Node is alive.
	Kubelet func(ctx context.Context, node string) (kubelet.State, error)
	Policy  lifecycle.Policy
	// NodeName is the node of this process: the fault of an unreachable provider is
	// reported about it. Without one it is not reported, but counted and shown.
	NodeName string
	// Poll is the time between two readings, Rounds between two rounds of decisions.
	Poll, Rounds time.Duration
	Clock        clock.WithTicker
	Log          *slog.Logger
	Metrics      *Metrics
}

// Bounds.
const (
	// readTime bounds one reading of the provider.
	readTime = 5 * time.Minute
	// unreachableAfter is how long readings have to fail before it is a fault.
	unreachableAfter = 5 * time.Minute
	// forgetEvery is how often what has expired is deleted.
	forgetEvery = time.Hour
	// MaxUnfinished bounds the maintenances that are open at once. What is announced
	// beyond it is not taken: the checkpoint stays, and readiness reports it.
	MaxUnfinished = 20000
)

// Reconciler is the loop. Make it with New.
type Reconciler struct {
	Options

	mu          sync.Mutex // held over every change of what follows, its writing included
	loaded      bool
	provider    maintenance.Provider
	mirror      map[string]maintenance.Event // unfinished, by id
	undecodable map[string]bool              // ids of documents that cannot be decoded
	queue       queue
	names       map[string][]string // the provider's, of machines that several Nodes claim
	// contested are these machines with the Node that is verified, empty for none.
	contested map[string]string

	polledAt  time.Time // the last reading, successful or not
	failing   time.Time // since when readings fail; zero when they do not
	forgotten time.Time

	statusMu sync.Mutex // over what readiness shows
	trouble  map[string]error

	ctx context.Context //nolint:containedctx // of the writes that the publisher asks for, which has none to give
}

// New makes a reconciler; Run begins the work.
func New(o Options) *Reconciler {
	d := &Reconciler{Options: o, trouble: map[string]error{}, ctx: context.Background()}
	d.queue.changed = make(chan struct{})
	return d
}

// Run works until ctx ends.
func (r *Reconciler) Run(ctx context.Context) error {
	r.mu.Lock()
	r.ctx = ctx
	r.mu.Unlock()
	tick := r.Clock.NewTicker(min(r.Poll, r.Rounds))
	defer tick.Stop()
	for {
		r.Round(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
	}
}

// Round asks the provider, if it is time, and decides about everything. What fails is
// noted and done again in the next round; the reading's failure keeps no decision
// from being made.
func (r *Reconciler) Round(ctx context.Context) {
	began := r.Clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.load(ctx)
	if err == nil && (r.polledAt.IsZero() || began.Sub(r.polledAt) >= r.Poll-min(r.Poll, r.Rounds)/2) {
		r.polledAt = began
		err = r.poll(ctx)
	}
	if err == nil {
		err = r.load(ctx) // after a reading whose update was lost
	}
	if err == nil {
		err = r.decide(ctx)
	}
	if err == nil && began.Sub(r.forgotten) >= forgetEvery {
		r.forgotten = began
		err = r.forget(ctx)
	}
	if ctx.Err() != nil {
		return
	}
	r.note("store", err)
	r.Metrics.Round.Observe(r.Clock.Since(began).Seconds())
	r.count()
}

// load fills the mirror, if it is not what the store holds.
func (r *Reconciler) load(ctx context.Context) error {
	if r.loaded {
		return nil
	}
	provider, err := r.Store.Provider(ctx, r.Origin.CSP)
	if errors.Is(err, store.ErrNotFound) {
		provider, err = maintenance.Provider{CSP: r.Origin.CSP}, nil
	}
	if err != nil {
		return fmt.Errorf("reading the state: %w", err)
	}
	events, err := r.Store.Unfinished(ctx, r.Origin.CSP)
	if err := r.skipUndecodable(err); err != nil {
		return fmt.Errorf("reading the state: %w", err)
	}
	r.provider, r.mirror = provider, make(map[string]maintenance.Event, len(events))
	for _, e := range events {
		r.mirror[e.EventID] = e
	}
	r.loaded = true
	r.enqueue()
	return nil
}

// skipUndecodable remembers documents that cannot be decoded: what the provider reports
// about them is skipped, because nobody knows what was reported before.
func (r *Reconciler) skipUndecodable(err error) error {
	bad, ok := errors.AsType[*store.UndecodableError](err)
	if !ok {
		return err
	}
	if r.undecodable == nil {
		r.undecodable = map[string]bool{}
	}
	for _, id := range bad.IDs {
		if !r.undecodable[id] {
			r.Log.Error("unreadable maintenance skipped, repair or delete it manually", "id", id)
		}
		r.undecodable[id] = true
	}
	r.Metrics.Undecodable.Set(float64(len(r.undecodable)))
	return nil
}

// save writes changed documents, and the provider's if it is given, and takes them
// into the mirror.
func (r *Reconciler) save(ctx context.Context, changed []maintenance.Event, provider *maintenance.Provider) error {
	for rest := changed; ; {
		part := rest[:min(len(rest), store.MaxMaintenances)]
		rest = rest[len(part):]
		b := store.MaintenanceUpdate{CSP: r.Origin.CSP, Events: part}
		if len(rest) == 0 {
			b.Provider = provider // a checkpoint is never ahead of what it stands for
		}
		if err := r.Store.SaveMaintenances(ctx, b); err != nil {
			r.loaded = false
			if errors.Is(err, store.ErrConflict) {
				r.Metrics.Conflicts.Inc()
			}
			return err
		}
		for _, e := range part {
			e.Revision++
			if r.mirror[e.EventID] = e; e.Finished {
				delete(r.mirror, e.EventID)
			}
		}
		if len(rest) == 0 {
			break
		}
	}
	if provider != nil {
		r.provider = *provider
		r.provider.Revision++
	}
	r.enqueue()
	return nil
}

func (r *Reconciler) forget(ctx context.Context) error {
	n, err := r.Store.Forget(ctx, r.Clock.Now())
	r.Metrics.Forgotten.Add(float64(n))
	return err
}

// note keeps what readiness reports about one part, and logs the first failure in a row and
// the recovery.
func (r *Reconciler) note(part string, err error) {
	r.statusMu.Lock()
	defer r.statusMu.Unlock()
	before := r.trouble[part]
	if err != nil && before == nil {
		r.Log.Warn("reconcile step failed, retrying", "part", part, "error", err)
	}
	if err == nil && before != nil {
		r.Log.Info("reconcile step recovered", "part", part)
	}
	r.trouble[part] = err
}

// Ready returns the readiness check of a part: "provider", "store" or "bound".
func (r *Reconciler) Ready(part string) func() (bool, string) {
	return func() (bool, string) {
		r.statusMu.Lock()
		defer r.statusMu.Unlock()
		if err := r.trouble[part]; err != nil {
			return false, err.Error()
		}
		return true, ""
	}
}
