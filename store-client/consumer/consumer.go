// Package consumer runs a leader-elected consumer of the change feed: it opens the feed when
// it becomes leader, lists the records that need work, reconciles one node at a time, commits
// the settled records, and closes the feed. A service provides the reconciler and further
// triggers.
//
// The feed also delivers the records that a consumer writes: OwnWrites distinguishes these
// from other news.
package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Service is one consumer of one store.
type Service struct {
	// Name of the consumer at the store, and in logs and readiness.
	Name string
	// Metrics are the names of its metrics.
	Metrics consume.Names
	Store   store.Store
	// Selector selects the records that the feed delivers.
	Selector record.Selector
	// Since is where a consumer that is new to the store begins, asked for when it
	// leads; nil is the first record.
	Since func() time.Time
	// Own are the records as the service writes them: a delivery that shows no more
	// than its own last write is settled unhandled. Nil writes none that its selector
	// brings back.
	Own *Records
	// Key of a delivery; nil is its node.
	Key func(record.Record) string
	// Reconcile brings what a key names up to date; see consume.Loop.Handle.
	Reconcile func(ctx context.Context, key string) error
	// Items, instead of Reconcile, handles the deliveries themselves, Pace is waited for
	// before each is taken in; see consume.Loop.
	Items  func(ctx context.Context, key string, items []record.Record) (done int, err error)
	Weight func(record.Record) int
	Pace   func(ctx context.Context, r record.Record)
	// Backlog enqueues every key with work that is not settled; see Open. May be nil.
	Backlog func(ctx context.Context, enqueue func(key string)) error
	// Sources enqueue besides the feed, Tasks are done by the leader alone; see consume.Loop.
	Sources []func(ctx context.Context, enqueue func(key string)) error
	Tasks   []consume.Task
	// Workers is how many keys are reconciled at once; 0 is the loop's default.
	Workers int
	// Vet finds a record that kills the process. Nil counts deaths, and lets other
	// keys go first.
	Vet *consume.Vetting[record.Record]

	log  *slog.Logger
	loop *consume.Loop[record.Record]
}

// Election is how one replica of a service comes to lead.
type Election struct {
	Lease lease.Config
	// Kubeconfig to find the lease with; empty is the pod's own account.
	Kubeconfig string
	// Task names the lease together with the service.
	Task string
	// Caches are filled and kept by the leader alone, before its services start: a replica
	// that stands by would take the memory, and the API server's time, for what it reads
	// in seconds when it leads.
	Caches []Cache
}

// Cache is a cache of objects, such as kube.Nodes.
type Cache interface {
	// Run keeps the cache until ctx ends.
	Run(ctx context.Context) error
	// WaitForSync blocks until the cache is filled, or ctx ends.
	WaitForSync(ctx context.Context) error
}

// Lead has services of one process work while it leads, and registers their readiness.
func Lead(d *daemon.Daemon, e Election, services ...*Service) {
	loops := make([]*consume.Loop[record.Record], len(services))
	for i, s := range services {
		loops[i] = s.Loop(d)
		d.Ready(s.Name, loops[i].Ready)
	}
	e.Lease.Lead(d, e.Kubeconfig, e.Task, func(ctx context.Context) error {
		work, ctx := errgroup.WithContext(ctx)
		for _, c := range e.Caches {
			work.Go(func() error { return c.Run(ctx) })
		}
		for _, c := range e.Caches {
			if c.WaitForSync(ctx) != nil {
				return work.Wait() //nolint:wrapcheck // of the cache that ended, or nil when ctx did
			}
		}
		for i := range services {
			work.Go(func() error { return loops[i].Run(ctx) })
		}
		return work.Wait() //nolint:wrapcheck // of a feed that could not be closed, or a cache
	})
}

// Loop makes the service at work, without its election; it is made and run once.
func (s *Service) Loop(d *daemon.Daemon) *consume.Loop[record.Record] {
	s.log = d.Log
	vet := s.Vet
	if vet == nil {
		vet = OpenCrashMemory(s.Store, s.Name, d.Clock).Vetting(nil, nil)
	}
	vet.Process = d.Crashes
	s.loop = &consume.Loop[record.Record]{
		Name: s.Name, Open: s.open, Key: s.key, Handle: s.Reconcile, Items: s.Items, Weight: s.Weight, Pace: s.Pace, Backlog: s.Backlog, Sources: s.Sources, Tasks: s.Tasks,
		Workers: s.Workers, Clock: d.Clock, Log: d.Log, Metrics: consume.NewMetrics(d.Registry, s.Metrics), Vet: vet,
	}
	return s.loop
}

// Oldest visits the oldest delivery of each key that Items has not done; its loop is
// made before.
func (s *Service) Oldest(visit func(record.Record)) { s.loop.Oldest(visit) }

// open opens the feed; called when the service leads, since a replica that stood by
// for days would read those days again otherwise.
func (s *Service) open(ctx context.Context) (consume.Feed[record.Record], error) {
	if s.Since != nil {
		since := s.Since()
		first, err := s.Store.Begin(ctx, s.Name, s.Selector, since)
		if err != nil {
			return nil, fmt.Errorf("starting the change feed %s: %w", s.Name, err)
		}
		if first {
			s.log.Info("first start on this store detected, reading recent and unfinished records", "consumer", s.Name, "since", since)
		}
	}
	feed, err := s.Store.Feed(ctx, s.Name, s.Selector)
	if err != nil {
		return nil, fmt.Errorf("opening the change feed %s: %w", s.Name, err)
	}
	return feed, nil
}

func (s *Service) key(r record.Record) string {
	switch {
	case s.Own != nil && s.Own.ignores(r):
		return ""
	case s.Key != nil:
		return s.Key(r)
	}
	return r.Event.NodeName
}

// Open is a backlog: it enqueues the nodes of the records that some selectors bring and
// that are open.
func Open(records store.Lister, open func(record.Record) bool, selectors ...record.Selector) func(context.Context, func(string)) error {
	return func(ctx context.Context, enqueue func(node string)) error {
		for _, selector := range selectors {
			err := store.Each(ctx, records, store.Query{Selector: selector}, func(r record.Record) error {
				if open(r) {
					enqueue(r.Event.NodeName)
				}
				return nil
			})
			if err != nil {
				return fmt.Errorf("listing the backlog %q: %w", selector.Name, err)
			}
		}
		return nil
	}
}
