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
	// minPollInterval is the least time between two looks that wake-ups ask for: a write
	// of another service may be of nothing that the feed selects. A wake-up after a
	// calm is followed at once.
	minPollInterval = 10 * time.Millisecond
	// pageRows and store.PageBytes bound what one read of a feed holds in memory.
	pageRows = 500
)

// errClosed is returned by a closed feed.
var errClosed = errors.New("change feed is closed")

// feed implements store.Feed. Next is for one goroutine; Commit may be called
// from others. After an error of Next or Commit the feed may be used again.
type feed struct {
	provider.Consumer[position]
	s        *Store
	selector record.Selector

	wake        <-chan struct{}
	unsubscribe func()
	closed      chan struct{}
	once        sync.Once

	// cursor is how far the store was read to the end, buffer what was read but
	// not yet delivered. target is the head up to which is being read, page by
	// page, and read the place of the last row of it; nil between two readings.
	cursor position
	buffer []item
	target *Head
	read   rowKey
	// parts numbers the rows delivered above a target's Tx.
	parts int
	// polledAt is when the store was looked at last.
	polledAt time.Time
	// horizon is the transaction under way that has kept the server's horizon back.
	horizon horizonHold
}

type item struct {
	rec record.Record
	pos position
	at  time.Time
}

// Feed implements store.Store.
func (s *Store) Feed(ctx context.Context, consumer string, selector record.Selector) (store.Feed, error) {
	if consumer == "" {
		return nil, errors.New("opening a change feed: the consumer has no name")
	}
	f := newFeed(s, consumer, selector)
	// Before the first read, so that no wake-up falls between the two.
	f.wake, f.unsubscribe = s.subscribe(f.heeds)
	if err := f.resume(ctx); err != nil {
		f.unsubscribe()
		return nil, fmt.Errorf("opening the change feed of %s: %w", consumer, err)
	}
	return f, nil
}

// newFeed is a feed that is not opened: it stands nowhere and is not woken.
func newFeed(s *Store, consumer string, selector record.Selector) *feed {
	return &feed{
		Consumer: provider.Consumer[position]{
			Name: consumer, Kind: provider.KindOf(selector), Lines: lines{s}, Clock: s.Clock, Log: s.Log, Metrics: s.Metrics,
		},
		s: s, selector: selector, closed: make(chan struct{}),
	}
}

// resume sets the cursor where the consumer goes on.
func (f *feed) resume(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	// Rows of a database restored from another server are made readable first.
	if err := f.s.Dialect.Adopt(ctx, f.s.db); err != nil {
		return fmt.Errorf("adopting the database: %w", err)
	}
	// The position before the head: a consumer at work never passes a head that is
	// read later.
	l, err := f.Lines.Line(ctx, f.Name)
	if err != nil {
		return err
	}
	head, err := f.s.head(ctx, f.s.db)
	if err != nil {
		return fmt.Errorf("reading the head: %w", err)
	}
	f.buffer, f.target = nil, nil
	pos, why := standing(l, head, f.Kind, f.cursor.Reading)
	if why != provider.NotLost {
		if err := f.Rescan(ctx, l, pos, why); err != nil {
			return err
		}
	}
	f.cursor = pos
	return nil
}

// Close implements store.Feed.
func (f *feed) Close() error {
	f.once.Do(func() {
		close(f.closed)
		f.unsubscribe()
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
			return it.rec, f.Deliver(it.pos, it.at), nil
		}
		f.polledAt = f.s.Clock.Now()
		full, err := f.fill(ctx)
		if err == nil && len(f.buffer) == 0 && !full {
			err = f.waitForChange(ctx)
		}
		if err != nil {
			return record.Record{}, "", fmt.Errorf("reading the change feed of %s: %w", f.Name, err)
		}
	}
}

// fill reads how far the store may be read, and the next page of the rows up to there that
// were not delivered. full reports whether more may follow.
func (f *feed) fill(ctx context.Context) (full bool, err error) {
	bounded, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	head, page, err := f.poll(bounded)
	if err != nil {
		return false, err
	}
	if head.Server != f.cursor.Server {
		return true, f.resume(ctx)
	}
	f.watch(bounded, head)
	if f.target == nil {
		if f.cursor.covers(head) {
			return false, nil
		}
		f.target = &head
	}
	for _, d := range page.broken {
		if err := f.Bury(ctx, d); err != nil {
			return false, err
		}
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

// waitForChange waits for the wake-up or the poll. When everything delivered is committed
// it stores, now and then, how far the feed has looked.
func (f *feed) waitForChange(ctx context.Context) error {
	if f.Idle() {
		if err := f.Store(ctx, f.cursor); err != nil {
			return err
		}
	}
	woken, err := f.await(ctx, pollEvery, f.wake)
	if !woken || err != nil {
		return err
	}
	if early := minPollInterval - f.s.Clock.Since(f.polledAt); early > 0 {
		_, err = f.await(ctx, min(early, minPollInterval), nil)
	}
	return err
}

// await waits for a wake-up, the end of a time or that of the feed.
func (f *feed) await(ctx context.Context, wait time.Duration, wake <-chan struct{}) (woken bool, err error) {
	timer := f.s.Clock.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-wake:
		return true, nil
	case <-timer.C():
	case <-f.closed:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	return false, nil
}
