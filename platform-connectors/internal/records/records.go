// Package records is the store as a connector needs it: it may be away when the
// connector starts, and the door opens all the same.
package records

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/store-client/store"
)

// again is how long an opening that failed for good is left alone: a person
// may mend the server while the spool keeps the events.
const again = 30 * time.Second

// Records opens the store in the background and hands it out.
type Records struct {
	open  func(ctx context.Context) (store.Store, error)
	clock clock.Clock
	log   *slog.Logger

	opened chan struct{} // closed when store is set
	mu     sync.Mutex
	store  store.Store
	detail string
}

// New returns the records of the store that open opens.
func New(open func(ctx context.Context) (store.Store, error), c clock.Clock, log *slog.Logger) *Records {
	return &Records{open: open, clock: c, log: log, opened: make(chan struct{}), detail: "the store is not open yet"}
}

// Run opens the store, for as long as it takes.
func (r *Records) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		s, err := r.open(ctx)
		r.mu.Lock()
		if err == nil {
			r.store, r.detail = s, "open"
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

// Store waits for the open store.
func (r *Records) Store(ctx context.Context) (store.Store, error) {
	select {
	case <-r.opened:
		s, _ := r.Opened()
		return s, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Opened is the open store, or false while it is not.
func (r *Records) Opened() (store.Store, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.store, r.store != nil
}

// Ready says whether the store is open, and why not.
func (r *Records) Ready() (bool, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.store != nil, r.detail
}

// Close closes the store if it was opened.
func (r *Records) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.store == nil {
		return nil
	}
	return r.store.Close()
}
