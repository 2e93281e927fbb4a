// Package records is where a connector's records go, the store or what stands
// before it: it may be away when the connector starts, and the door opens all the
// same.
package records

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// again is how long an opening that failed for good is left alone: a person
// may mend the server while the spool keeps the events.
const again = 30 * time.Second

// Place is where records go.
type Place interface {
	// Append and Dead are those of store.Appender.
	Append(ctx context.Context, records []record.Record) ([]store.AppendResult, error)
	Dead(ctx context.Context, letter store.DeadLetter) error
	Close() error
}

// Historian is a Place that also tells what it holds of the connector's own node.
type Historian interface {
	// History is the next page of the node's PROCESS records in append order,
	// behind the one at the given place; an empty page ends it.
	History(ctx context.Context, after int64) ([]record.Record, error)
}

// page is how many records one page of a history has.
const page = 500

// historyOf selects the records of a node that may show in its conditions.
func historyOf(node string) record.Selector {
	return record.Selector{Name: "NodeHistory", Node: node, Strategy: record.Process}
}

// History is a page of a node's history in the store.
func History(ctx context.Context, s interface {
	List(ctx context.Context, q store.Query) ([]record.Record, error)
}, node string, after int64, limit int,
) ([]record.Record, error) {
	var more bool // who asks gets a page that is bounded by bytes; an empty one is the end
	return s.List(ctx, store.Query{Selector: historyOf(node), After: after, Limit: limit, More: &more})
}

// Direct is the store as the Place of one node.
type Direct struct {
	store.Store
	// Node is the connector's.
	Node string
}

// AppendTo implements kept.Place.
func (d Direct) AppendTo(ctx context.Context, server string, batch []record.Record) ([]store.AppendResult, string, error) {
	known, ok := d.Store.(store.Identified)
	if !ok {
		results, err := d.Append(ctx, batch)
		return results, "", err
	}
	return known.AppendTo(ctx, server, batch)
}

// History implements Historian.
func (d Direct) History(ctx context.Context, after int64) ([]record.Record, error) {
	return History(ctx, d.Store, d.Node, after, page)
}

// Records opens the place in the background and hands it out.
type Records struct {
	open  func(ctx context.Context) (Place, error)
	clock clock.Clock
	log   *slog.Logger

	opened chan struct{} // closed when place is set
	mu     sync.Mutex
	place  Place
	detail string
}

// New returns the records of the place that open opens.
func New(open func(ctx context.Context) (Place, error), c clock.Clock, log *slog.Logger) *Records {
	return &Records{open: open, clock: c, log: log, opened: make(chan struct{}), detail: "the store is not open yet"}
}

// Run opens the store, for as long as it takes.
func (r *Records) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		s, err := r.open(ctx)
		r.mu.Lock()
		if err == nil {
			r.place, r.detail = s, "open"
			r.mu.Unlock()
			close(r.opened)
			return nil
		}
		r.detail = err.Error()
		r.mu.Unlock()
		if ctx.Err() == nil {
			r.log.Error("opening the store failed; the spool keeps the events", "again_in", again, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-r.clock.After(again):
		}
	}
	return nil
}

// Wait waits for the open place.
func (r *Records) Wait(ctx context.Context) (Place, error) {
	select {
	case <-r.opened:
		s, _ := r.Opened()
		return s, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Opened is the open place, or false while it is not.
func (r *Records) Opened() (Place, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.place, r.place != nil
}

// Ready says whether the store is open, and why not.
func (r *Records) Ready() (bool, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.place != nil, r.detail
}

// Close closes the store if it was opened.
func (r *Records) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.place == nil {
		return nil
	}
	return r.place.Close()
}
