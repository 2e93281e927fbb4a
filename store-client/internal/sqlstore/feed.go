package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/store"
)

const (
	// pollEvery bounds the delay after a lost wake-up.
	pollEvery = time.Second
	// lookEvery is the least time between two looks that bells ask for: every
	// write of any service rings every feed, mostly with nothing for it. A ring
	// after a calm is followed at once.
	lookEvery = 10 * time.Millisecond
	// restEvery is how often a feed with nothing to deliver stores how far it
	// has looked, so that a restart does not look again.
	restEvery = time.Minute
	// pageRows and store.PageBytes bound what one read of a feed holds in memory.
	pageRows = 500
)

// errClosed is returned by a closed feed.
var errClosed = errors.New("feed is closed")

// feed implements store.Feed. Next is for one goroutine; Commit may be called
// from others. After an error of Next or Commit the feed may be used again.
type feed struct {
	s        *Store
	consumer string
	selector record.Selector
	kind     kind

	bell   <-chan struct{}
	unbell func()
	closed chan struct{}
	once   sync.Once

	// cursor is how far the store was read to the end, buffer what was read but
	// not yet delivered. target is the head up to which is being read, page by
	// page, and read the place of the last row of it; nil between two readings.
	cursor position
	buffer []item
	target *Head
	read   place
	// parts numbers the rows delivered above a target's Tx.
	parts  int
	rested time.Time
	// looked is when the store was looked at last.
	looked time.Time
	// held is the transaction under way that has kept the server's horizon back.
	held hold

	mu                   sync.Mutex
	delivered, committed string
}

type item struct {
	rec record.Record
	pos position
	at  time.Time
}

// Feed implements store.Store.
func (s *Store) Feed(ctx context.Context, consumer string, selector record.Selector) (store.Feed, error) {
	if consumer == "" {
		return nil, errors.New("opening a feed: the consumer has no name")
	}
	f := newFeed(s, consumer, selector)
	// Before the first read, so that no ring falls between the two.
	f.bell, f.unbell = s.subscribe()
	if err := f.resume(ctx); err != nil {
		f.unbell()
		return nil, fmt.Errorf("opening the feed of %s: %w", consumer, err)
	}
	return f, nil
}

// newFeed is a feed that is not opened: it stands nowhere and hears no bell.
func newFeed(s *Store, consumer string, selector record.Selector) *feed {
	f := &feed{s: s, consumer: consumer, selector: selector, kind: byChange, closed: make(chan struct{}), rested: s.Clock.Now()}
	if selector.InsertsOnly {
		f.kind = byInsert
	}
	return f
}

// Close implements store.Feed.
func (f *feed) Close() error {
	f.once.Do(func() {
		close(f.closed)
		f.unbell()
	})
	return nil
}

// Next implements store.Feed.
func (f *feed) Next(ctx context.Context) (record.Record, string, error) {
	for {
		select {
		case <-f.closed:
			return record.Record{}, "", errClosed
		default:
		}
		if len(f.buffer) > 0 {
			it := f.buffer[0]
			f.buffer = f.buffer[1:]
			return it.rec, f.deliver(it), nil
		}
		f.looked = f.s.Clock.Now()
		full, err := f.fill(ctx)
		if err == nil && len(f.buffer) == 0 && !full {
			err = f.rest(ctx)
		}
		if err != nil {
			return record.Record{}, "", fmt.Errorf("reading the feed of %s: %w", f.consumer, err)
		}
	}
}

func (f *feed) deliver(it item) string {
	f.s.Metrics.Lag.WithLabelValues(f.consumer).Set(max(0, f.s.Clock.Since(it.at).Seconds()))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delivered = it.pos.String()
	return f.delivered
}

// fill reads the next page: first how far the store may be read, then the rows
// up to there that were not delivered. full says that more may follow.
func (f *feed) fill(ctx context.Context) (full bool, err error) {
	bounded, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	// One connection: after a failover the head of one server must not be used
	// on another.
	conn, err := f.s.db.Conn(bounded)
	if err != nil {
		return false, fmt.Errorf("connecting: %w", err)
	}
	defer conn.Close()
	head, err := f.s.Dialect.Head(bounded, conn)
	if err != nil {
		return false, fmt.Errorf("reading the head: %w", err)
	}
	if head.Server != f.cursor.Server {
		if err := conn.Close(); err != nil {
			return false, fmt.Errorf("releasing the connection: %w", err)
		}
		return true, f.resume(ctx)
	}
	f.watch(bounded, conn, head)
	if f.target == nil {
		if f.cursor.covers(head) {
			return false, nil
		}
		f.target, f.read = &head, place{f.cursor.Tx, f.cursor.Seq}
	}
	page, err := f.page(bounded, conn)
	if err != nil {
		return false, err
	}
	if err := f.bury(ctx, page.broken); err != nil {
		return false, err
	}
	f.buffer, f.read = page.items, page.last
	if !page.full {
		f.cursor, f.target = f.cursor.through(*f.target), nil
		f.conclude()
	}
	return page.full, nil
}

// conclude gives the last row of a reading the position of its end.
func (f *feed) conclude() {
	if n := len(f.buffer); n > 0 && f.buffer[n-1].pos.Part > 0 {
		f.buffer[n-1].pos = f.cursor
	}
}

// bury keeps broken documents as dead letters, counts and passes them.
func (f *feed) bury(ctx context.Context, broken []provider.Document) error {
	for _, d := range broken {
		letter := d.Letter("feed of " + f.consumer)
		letter.At = f.s.Clock.Now()
		if err := f.s.Dead(ctx, letter); err != nil {
			return err
		}
		f.s.Metrics.Undecodable.WithLabelValues(f.consumer).Inc()
		f.s.Log.Error("passing a record that cannot be decoded", "consumer", f.consumer, "record", letter.ID, "error", letter.Reason)
	}
	return nil
}

// rest waits for the bell or the poll. When everything delivered is committed
// it stores, now and then, how far the feed has looked.
func (f *feed) rest(ctx context.Context) error {
	f.s.Metrics.Lag.WithLabelValues(f.consumer).Set(0)
	if f.settled() && f.s.Clock.Since(f.rested) >= restEvery {
		f.rested = f.s.Clock.Now()
		if err := f.store(ctx, f.cursor); err != nil {
			return err
		}
	}
	rung, err := f.await(ctx, pollEvery, f.bell)
	if !rung || err != nil {
		return err
	}
	if early := lookEvery - f.s.Clock.Since(f.looked); early > 0 {
		_, err = f.await(ctx, min(early, lookEvery), nil)
	}
	return err
}

// await waits for a ring of the bell, the end of a time or that of the feed.
func (f *feed) await(ctx context.Context, wait time.Duration, bell <-chan struct{}) (rung bool, err error) {
	timer := f.s.Clock.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-bell:
		return true, nil
	case <-timer.C():
	case <-f.closed:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	return false, nil
}

func (f *feed) settled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.delivered == f.committed
}
