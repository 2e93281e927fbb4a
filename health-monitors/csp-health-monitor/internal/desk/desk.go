// Package desk is the loop of csp-health-monitor: it asks the provider, keeps what was
// announced, decides what follows, and tells it.
//
// The store is the truth and the desk's own copy a mirror of what is not finished.
// Every write compares revisions, so that a replica that has lost the lease writes
// nothing; after a write that failed the mirror is read again. What is to be told
// becomes part of its document first, is sent then, and is stamped when the connector
// has acknowledged it: a death in between sends the same event again.
package desk

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
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/internal/fleet"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/lifecycle"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Options of a desk.
type Options struct {
	Source announcement.Source
	Place  lifecycle.Place
	Store  store.Maintenances
	// Fleet reads the cluster's machines.
	Fleet  func() fleet.Fleet
	Policy lifecycle.Policy
	// NodeName is the node of this process: the fault of an unreachable provider is
	// told of it. Without one it is not told, but counted and shown.
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
	// beyond it is not taken: the checkpoint stays, and readiness says so.
	MaxUnfinished = 20000
)

// Desk is the loop. Make it with New.
type Desk struct {
	Options

	mu       sync.Mutex // held over every change of what follows, its writing included
	loaded   bool
	provider maintenance.Provider
	mirror   map[string]maintenance.Event // unfinished, by id
	aside    map[string]bool              // ids of documents that cannot be decoded
	queue    queue

	asked     time.Time // the last reading, successful or not
	failing   time.Time // since when readings fail; zero when they do not
	forgotten time.Time

	look    sync.Mutex // over what readiness shows
	trouble map[string]error

	life context.Context //nolint:containedctx // of the writes that the publisher asks for, which has none to give
}

// New makes a desk; Run begins the work.
func New(o Options) *Desk {
	d := &Desk{Options: o, trouble: map[string]error{}, life: context.Background()}
	d.queue.changed = make(chan struct{})
	return d
}

// Run works until ctx ends.
func (d *Desk) Run(ctx context.Context) error {
	d.mu.Lock()
	d.life = ctx
	d.mu.Unlock()
	tick := d.Clock.NewTicker(min(d.Poll, d.Rounds))
	defer tick.Stop()
	for {
		d.Round(ctx)
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
func (d *Desk) Round(ctx context.Context) {
	began := d.Clock.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.load(ctx)
	if err == nil && (d.asked.IsZero() || began.Sub(d.asked) >= d.Poll-min(d.Poll, d.Rounds)/2) {
		d.asked = began
		err = d.ask(ctx)
	}
	if err == nil {
		err = d.load(ctx) // after a reading whose booking was lost
	}
	if err == nil {
		err = d.decide(ctx)
	}
	if err == nil && began.Sub(d.forgotten) >= forgetEvery {
		d.forgotten = began
		err = d.forget(ctx)
	}
	if ctx.Err() != nil {
		return
	}
	d.note("store", err)
	d.Metrics.Round.Observe(d.Clock.Since(began).Seconds())
	d.count()
}

// load fills the mirror, if it is not what the store holds.
func (d *Desk) load(ctx context.Context) error {
	if d.loaded {
		return nil
	}
	provider, err := d.Store.Provider(ctx, d.Place.CSP)
	if errors.Is(err, store.ErrNotFound) {
		provider, err = maintenance.Provider{CSP: d.Place.CSP}, nil
	}
	if err != nil {
		return fmt.Errorf("reading the state: %w", err)
	}
	events, err := d.Store.Unfinished(ctx, d.Place.CSP)
	if err := d.setAside(err); err != nil {
		return fmt.Errorf("reading the state: %w", err)
	}
	d.provider, d.mirror = provider, make(map[string]maintenance.Event, len(events))
	for _, e := range events {
		d.mirror[e.EventID] = e
	}
	d.loaded = true
	d.enqueue()
	return nil
}

// setAside remembers documents that cannot be decoded: what the provider says of them
// is passed over, because nobody knows what was told.
func (d *Desk) setAside(err error) error {
	bad, ok := errors.AsType[*store.UndecodableError](err)
	if !ok {
		return err
	}
	if d.aside == nil {
		d.aside = map[string]bool{}
	}
	for _, id := range bad.IDs {
		if !d.aside[id] {
			d.Log.Error("a stored maintenance cannot be read; it is passed over, and a person has to mend or delete it", "id", id)
		}
		d.aside[id] = true
	}
	d.Metrics.Aside.Set(float64(len(d.aside)))
	return nil
}

// book writes changed documents, and the provider's if it is given, and takes them
// into the mirror.
func (d *Desk) book(ctx context.Context, changed []maintenance.Event, provider *maintenance.Provider) error {
	for rest := changed; ; {
		part := rest[:min(len(rest), store.MaxBooking)]
		rest = rest[len(part):]
		b := store.Booking{CSP: d.Place.CSP, Events: part}
		if len(rest) == 0 {
			b.Provider = provider // a checkpoint is never ahead of what it stands for
		}
		if err := d.Store.Book(ctx, b); err != nil {
			d.loaded = false
			if errors.Is(err, store.ErrConflict) {
				d.Metrics.Conflicts.Inc()
			}
			return err
		}
		for _, e := range part {
			e.Revision++
			if d.mirror[e.EventID] = e; e.Finished {
				delete(d.mirror, e.EventID)
			}
		}
		if len(rest) == 0 {
			break
		}
	}
	if provider != nil {
		d.provider = *provider
		d.provider.Revision++
	}
	d.enqueue()
	return nil
}

func (d *Desk) forget(ctx context.Context) error {
	n, err := d.Store.Forget(ctx, d.Clock.Now())
	d.Metrics.Forgotten.Add(float64(n))
	return err
}

// note keeps what readiness says of one part, and logs the first failure of a row and
// its end.
func (d *Desk) note(part string, err error) {
	d.look.Lock()
	defer d.look.Unlock()
	before := d.trouble[part]
	if err != nil && before == nil {
		d.Log.Warn("something failed and is tried again", "part", part, "error", err)
	}
	if err == nil && before != nil {
		d.Log.Info("it works again", "part", part)
	}
	d.trouble[part] = err
}

// Ready says whether a part works: "provider", "store" or "bound".
func (d *Desk) Ready(part string) func() (bool, string) {
	return func() (bool, string) {
		d.look.Lock()
		defer d.look.Unlock()
		if err := d.trouble[part]; err != nil {
			return false, err.Error()
		}
		return true, ""
	}
}
