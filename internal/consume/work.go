package consume

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/nvidia/nvsentinel/internal/retry"
)

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

// handle runs the handler once and does what its answer says.
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
		l.Log.Debug("waiting", "key", key, "why", why, "again", d)
		l.hold(key, why)
		l.queue.Forget(key)
		l.queue.AddAfter(key, max(d, minAgain))
	case resultPark:
		d, why, _ := retry.AsPark(err)
		l.Log.Debug("parked", "key", key, "why", why, "again", d)
		l.settle(key, upTo)
		l.queue.Forget(key)
		if d <= 0 {
			d = minPark
		}
		l.queue.AddAfter(key, d)
	case resultError:
		l.Log.Warn("handling failed, trying again", "key", key, "error", err, "failures", l.queue.NumRequeues(key)+1)
		l.hold(key, err.Error())
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

// hold notes that a key's work is not through, from its first such answer on.
func (l *Loop[R]) hold(key, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, ok := l.held[key]
	if !ok {
		h.since = l.Clock.Now()
	}
	h.why = why
	l.held[key] = h
}

// settle lets the deliveries of key up to a number go.
func (l *Loop[R]) settle(key string, upTo uint64) {
	l.mu.Lock()
	delete(l.held, key)
	moved := l.tracker.settle(key, upTo)
	l.mu.Unlock()
	if moved {
		signal(l.dirty)
	}
	signal(l.shrunk)
}
