package consume

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/nvidia/nvsentinel/internal/retry"
)

// read opens the feed, runs the backlog to its end, and then the live feed: what
// changes while the backlog is read is in both.
func (l *Loop[R]) read(ctx context.Context) {
	if l.Open != nil {
		l.repeat(ctx, opening, func() error { return l.open(ctx) })
	}
	if l.Backlog != nil && ctx.Err() == nil {
		l.repeat(ctx, "backlog", func() error { return l.Backlog(ctx, l.Enqueue) })
	}
	if ctx.Err() != nil {
		return
	}
	l.enter(live)
	if feed := l.opened(); feed != nil {
		l.repeat(ctx, "feed", func() error { return l.follow(ctx, feed) })
	}
}

// opening is the source that a feed is until it is open.
const opening = "opening the change feed"

func (l *Loop[R]) open(ctx context.Context) error {
	feed, err := l.Open(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.feed = feed
	return nil
}

// opened is the feed; nil while it is not open.
func (l *Loop[R]) opened() Feed[R] {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.feed
}

// follow reads deliveries until the feed fails.
func (l *Loop[R]) follow(ctx context.Context, feed Feed[R]) error {
	for ctx.Err() == nil {
		item, position, err := feed.Next(ctx)
		if err != nil {
			return err
		}
		if l.Pace != nil && !l.isDeadLetter(item) {
			l.Pace(ctx, item)
			if ctx.Err() != nil {
				return ctx.Err() // not taken in, so that no later position passes it
			}
		}
		l.deliver(ctx, item, position)
		l.awaitShrunk(ctx)
	}
	return ctx.Err()
}

// deliver enters one delivery in the tracker, before its key can be handled.
func (l *Loop[R]) deliver(ctx context.Context, item R, position string) {
	var key string
	err := protect(func() (err error) { key, err = l.admit(ctx, item); return err })
	if err != nil && ctx.Err() != nil {
		return
	}
	if err != nil {
		// Nobody can handle it, and it must not be passed: it is held and shows.
		l.Log.Error("delivery without a key received", "position", position, "error", err)
		key = keyless
		l.markPending(key, err.Error())
	}
	l.mu.Lock()
	l.tracker.receive(key, position, l.Clock.Now())
	l.keep(key, item)
	count := l.tracker.count
	l.mu.Unlock()
	switch key {
	case keyless:
	case "":
		l.Metrics.observe(resultIgnored, 0)
		l.settle(key, count)
	default:
		l.queue.Add(key)
	}
}

// awaitShrunk blocks while too much is unsettled.
func (l *Loop[R]) awaitShrunk(ctx context.Context) {
	for {
		l.mu.Lock()
		full := l.tracker.unsettled >= l.limit || l.waiting.count >= MaxItems || l.waiting.weight >= MaxItemBytes
		l.mu.Unlock()
		if !full {
			return
		}
		select {
		case <-l.shrunk:
		case <-ctx.Done():
			return
		}
	}
}

// repeat runs a source until it ends well or ctx ends; a failing one is tried
// again with backoff, which starts over when the source ran for longer than
// the longest backoff.
func (l *Loop[R]) repeat(ctx context.Context, name string, run func() error) {
	pause := minBackoff
	for {
		began := l.Clock.Now()
		err := protect(run)
		if err == nil || ctx.Err() != nil {
			l.mu.Lock()
			delete(l.trouble, name)
			l.mu.Unlock()
			return
		}
		if l.Clock.Since(began) > maxBackoff {
			pause = minBackoff
		}
		l.fail(name, err)
		if !retry.Sleep(ctx, l.Clock, pause) {
			return
		}
		pause = min(2*pause, maxBackoff/2)
	}
}

// do does a task, and again after each pause.
func (l *Loop[R]) do(ctx context.Context, t Task) {
	for {
		l.repeat(ctx, t.Name, func() error { return t.Do(ctx) })
		if t.Every <= 0 || !retry.Sleep(ctx, l.Clock, t.Every) {
			return
		}
	}
}

// fail notes and logs a failing source.
func (l *Loop[R]) fail(name string, err error) {
	l.Log.Warn("source failed, retrying", "source", name, "error", err)
	l.Metrics.failed(name)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.Clock.Now()
	h, ok := l.trouble[name]
	if !ok || h.over(now) {
		h.since = now
	}
	h.last, h.why = now, err.Error()
	l.trouble[name] = h
}

// commitLoop commits the contiguous position when it has moved, at most once
// per commitEvery.
func (l *Loop[R]) commitLoop(ctx context.Context) {
	pause := time.Duration(0)
	for {
		select {
		case <-l.dirty:
		case <-ctx.Done():
			return
		}
		if err := l.commit(ctx); err == nil {
			pause = commitEvery
		} else if errors.Is(err, context.Canceled) {
			return
		} else {
			pause = min(max(2*pause, minBackoff), maxBackoff/2)
			l.fail("commit", err)
			l.dirty.Call()
		}
		if !retry.Sleep(ctx, l.Clock, pause) {
			return
		}
	}
}

// commit stores the contiguous position if it has moved.
func (l *Loop[R]) commit(ctx context.Context) error {
	l.mu.Lock()
	feed, position, moved := l.feed, l.tracker.done, l.tracker.moved
	l.tracker.moved = false
	l.mu.Unlock()
	if !moved {
		return nil
	}
	err := feed.Commit(ctx, position)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.tracker.moved = true
		return fmt.Errorf("committing position %q: %w", position, err)
	}
	delete(l.trouble, "commit")
	l.Metrics.committed()
	return nil
}

// work handles keys until the queue is shut down.
func (l *Loop[R]) work(ctx context.Context) {
	for {
		key, down := l.queue.Get()
		if down {
			return
		}
		if ctx.Err() == nil {
			l.handle(ctx, key)
		}
		l.queue.Done(key)
	}
}

// handle runs the handler once and does what its answer requires.
func (l *Loop[R]) handle(ctx context.Context, key string) {
	// Deliveries received from here on may carry facts the handler does not
	// read, so they are left to the next round.
	upTo := uint64(0) // of items those that are done are settled one by one
	if l.Items == nil {
		l.mu.Lock()
		upTo = l.tracker.count
		l.mu.Unlock()
	}

	began := l.Clock.Now()
	err := protect(func() error { return l.vetted(ctx, key) })
	result := resultOf(err)
	if ctx.Err() != nil && err != nil {
		return // cut short by the shutdown: nothing is known to be done
	}
	l.Metrics.observe(result, l.Clock.Since(began))
	switch result {
	case resultWait:
		d, why, _ := retry.AsWait(err)
		l.Log.Debug("key held, retry scheduled", "key", key, "why", why, "again", d)
		l.markPending(key, why)
		l.queue.Forget(key)
		l.queue.AddAfter(key, max(d, minAgain))
	case resultPark:
		d, why, _ := retry.AsPark(err)
		l.Log.Debug("key parked, retry scheduled", "key", key, "why", why, "again", d)
		l.settle(key, upTo)
		l.queue.Forget(key)
		if d <= 0 {
			d = minPark
		}
		l.queue.AddAfter(key, d)
	case resultError:
		l.Log.Warn("handling failed, retrying", "key", key, "error", err, "failures", l.queue.NumRequeues(key)+1)
		l.markPending(key, err.Error())
		l.queue.AddRateLimited(key)
	default:
		l.settle(key, upTo)
		l.queue.Forget(key)
		l.goOn(key)
	}
}

// protect turns a panic into an error: a poison key must not stop the others.
func protect(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return do()
}

// resultOf names an answer for the metrics.
func resultOf(err error) string {
	if err == nil {
		return resultSettled
	}
	if _, _, ok := retry.AsWait(err); ok {
		return resultWait
	}
	if _, _, ok := retry.AsPark(err); ok {
		return resultPark
	}
	return resultError
}

// markPending notes that a key's work is not through, from its first such answer on.
func (l *Loop[R]) markPending(key, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, ok := l.pending[key]
	if !ok {
		h.since = l.Clock.Now()
	}
	h.why = why
	l.pending[key] = h
}

// settle lets the deliveries of key up to a number go.
func (l *Loop[R]) settle(key string, upTo uint64) {
	l.mu.Lock()
	delete(l.pending, key)
	moved := l.tracker.settle(key, upTo)
	l.mu.Unlock()
	if moved {
		l.dirty.Call()
	}
	l.shrunk.Call()
}
