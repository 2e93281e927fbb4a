package upstream

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// again is how long an opening that failed for good is left alone: a person
// may mend the server while the spool keeps the events.
const again = 30 * time.Second

// Destination is where records go.
type Destination interface {
	// Append is that of store.Store. Dead keeps a dead letter.
	Append(ctx context.Context, records []record.Record) ([]store.AppendResult, error)
	Dead(ctx context.Context, deadLetter store.DeadLetter) error
	Close() error
}

// Historian is a Destination that also tells what it holds of the connector's own node.
type Historian interface {
	// History is the next page of the node's PROCESS records in append order,
	// behind the one at the given place; an empty page ends it.
	History(ctx context.Context, after int64) ([]record.Record, error)
}

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

// Lazy opens the destination in the background and hands it out.
type Lazy struct {
	open  func(ctx context.Context) (Destination, error)
	clock clock.Clock
	log   *slog.Logger

	opened chan struct{} // closed when dest is set
	mu     sync.Mutex
	dest   Destination
	detail string
}

// NewLazy returns the destination that open opens.
func NewLazy(open func(ctx context.Context) (Destination, error), c clock.Clock, log *slog.Logger) *Lazy {
	return &Lazy{open: open, clock: c, log: log, opened: make(chan struct{}), detail: "the store is not open yet"}
}

// Run opens the store, for as long as it takes.
func (l *Lazy) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		s, err := l.open(ctx)
		l.mu.Lock()
		if err == nil {
			l.dest, l.detail = s, "open"
			l.mu.Unlock()
			close(l.opened)
			return nil
		}
		l.detail = err.Error()
		l.mu.Unlock()
		if ctx.Err() == nil {
			l.log.Error("opening the store failed; the spool keeps the events", "again_in", again, "error", err)
		}
		retry.Sleep(ctx, l.clock, again)
	}
	return nil
}

// Wait waits for the open destination.
func (l *Lazy) Wait(ctx context.Context) (Destination, error) {
	select {
	case <-l.opened:
		s, _ := l.Opened()
		return s, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Opened is the open destination, or false while it is not.
func (l *Lazy) Opened() (Destination, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dest, l.dest != nil
}

// Ready says whether the store is open, and why not.
func (l *Lazy) Ready() (bool, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dest != nil, l.detail
}

// Close closes the store if it was opened.
func (l *Lazy) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dest == nil {
		return nil
	}
	return l.dest.Close()
}

// OtherContent is why a store refuses a record.
const OtherContent = "its id is stored with other content, or no store can hold it"

type listenerKey struct{}

// Listen returns a context of Append under which a Place tells why it refuses a
// record, where it has more to say than OtherContent. It is told before Append
// returns, by the goroutine that called it.
func Listen(ctx context.Context, refused func(id, problem string)) context.Context {
	return context.WithValue(ctx, listenerKey{}, refused)
}

// Tell says to who listens why the record is refused.
func Tell(ctx context.Context, id, problem string) {
	if refused, ok := ctx.Value(listenerKey{}).(func(id, problem string)); ok {
		refused(id, problem)
	}
}

type droppedKey struct{}

// ListenDropped returns a context of Dead under which a Place tells how many dead letters
// of the node are gone since.
func ListenDropped(ctx context.Context, dropped func(n int)) context.Context {
	return context.WithValue(ctx, droppedKey{}, dropped)
}

// TellDropped says to who listens that dead letters are gone.
func TellDropped(ctx context.Context, n int) {
	if dropped, ok := ctx.Value(droppedKey{}).(func(n int)); ok && n > 0 {
		dropped(n)
	}
}

type anewKey struct{}

// Anew returns a context of Append that says that somebody has ended faults of the node:
// what is appended repeats nothing that was before.
func Anew(ctx context.Context) context.Context { return context.WithValue(ctx, anewKey{}, true) }

// IsAnew says whether it is one.
func IsAnew(ctx context.Context) bool {
	anew, _ := ctx.Value(anewKey{}).(bool)
	return anew
}
