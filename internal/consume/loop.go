// Package consume turns a change feed into handled keys: the feed is a
// doorbell, the handler reads the facts. One loop serves every service that
// follows the stored records.
package consume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/outcome"
)

// Feed is a resumable stream; store.Feed is one of records.
type Feed[R any] interface {
	// Next blocks for the next item and its opaque position.
	Next(ctx context.Context) (R, string, error)
	// Commit stores the position.
	Commit(ctx context.Context, position string) error
	Close() error
}

// Loop handles keys: the same key serially, other keys in parallel. Handle's
// result says what happens next:
//
//   - nil: settled.
//   - outcome.Wait: again soon, the feed's position is held.
//   - outcome.Park: again later or when rung; the position is released.
//   - outcome.Terminal: GiveUp stamps it, then it is settled.
//   - any other error: again after a growing delay, the position is held.
//
// The position committed is the one below the oldest unsettled delivery, so
// that a crash repeats work and never skips it.
type Loop[R any] struct {
	Name string
	Feed Feed[R]
	// Key names what an item is about, mostly a node.
	Key func(R) string
	// Handle observes, decides, does and stamps for one key.
	Handle func(ctx context.Context, key string) error
	// GiveUp stamps a terminal failure; nil logs it.
	GiveUp func(ctx context.Context, key string, err error) error
	// Backlog rings what is open in the store; it runs before the feed.
	Backlog func(ctx context.Context, ring func(key string)) error
	// Bells ring keys for other reasons, for as long as the loop runs.
	Bells []func(ctx context.Context, ring func(key string)) error
	// Workers is the number of keys handled at once (default 8).
	Workers int
	Clock   clock.WithTicker
	Log     *slog.Logger
	Metrics *Metrics
	// StuckAfter is how long a delivery may stay unsettled before the loop
	// says that it is not ready (default 1 m).
	StuckAfter time.Duration

	once    sync.Once
	queue   workqueue.TypedDelayingInterface[string]
	backoff workqueue.TypedRateLimiter[string]
	ledger  *ledger
	started sync.Map // tasks that are up, for Ready
}

// Limits of the loop.
const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 30 * time.Second
	commitEvery  = 100 * time.Millisecond
	// maxUnsettled bounds the deliveries that wait at once.
	maxUnsettled = 20_000
)

func (l *Loop[R]) init() {
	l.once.Do(func() {
		if l.Workers <= 0 {
			l.Workers = 8
		}
		if l.StuckAfter <= 0 {
			l.StuckAfter = time.Minute
		}
		l.queue = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Clock: l.Clock})
		l.backoff = workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstBackoff, lastBackoff)
		l.ledger = newLedger(l.Clock)
	})
}

// Run runs until ctx ends or a bell breaks; a feed that fails is tried again.
func (l *Loop[R]) Run(ctx context.Context) error {
	l.init()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	failures := make(chan error, len(l.Bells)+1)
	for range l.Workers {
		wg.Go(func() { l.work(ctx) })
	}
	for _, bell := range l.Bells {
		wg.Go(func() {
			if err := bell(ctx, l.queue.Add); err != nil && ctx.Err() == nil {
				failures <- fmt.Errorf("%s: a bell broke: %w", l.Name, err)
				cancel()
			}
		})
	}
	wg.Go(func() { l.commit(ctx) })
	wg.Go(func() { l.backlog(ctx); l.read(ctx) })
	<-ctx.Done()
	l.queue.ShutDown()
	wg.Wait()
	last, stop := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer stop()
	l.commitOnce(last)
	select {
	case err := <-failures:
		return err
	default:
		return nil
	}
}

// Ring asks for a key to be handled.
func (l *Loop[R]) Ring(key string) {
	l.init()
	l.queue.Add(key)
}

// backlog repeats until it went through once.
func (l *Loop[R]) backlog(ctx context.Context) {
	if l.Backlog != nil {
		l.retry(ctx, "reading the backlog", func() error { return l.Backlog(ctx, l.queue.Add) })
	}
	l.started.Store("backlog", true)
}

// read follows the feed.
func (l *Loop[R]) read(ctx context.Context) {
	for ctx.Err() == nil {
		l.ledger.waitBelow(ctx, maxUnsettled)
		l.retry(ctx, "reading the feed", func() error {
			item, position, err := l.Feed.Next(ctx)
			if err != nil {
				return err
			}
			key := l.Key(item)
			l.ledger.receive(key, position)
			l.queue.Add(key)
			return nil
		})
	}
}

// retry repeats f with a growing delay until it works or ctx ends.
func (l *Loop[R]) retry(ctx context.Context, what string, f func() error) {
	for delay := firstBackoff; ctx.Err() == nil; delay = min(2*delay, lastBackoff) {
		err := f()
		if err == nil || ctx.Err() != nil {
			return
		}
		l.Log.Error(what+" failed, trying again", "loop", l.Name, "in", delay, "error", err)
		select {
		case <-ctx.Done():
		case <-l.Clock.After(delay):
		}
	}
}

func (l *Loop[R]) work(ctx context.Context) {
	for {
		key, shutdown := l.queue.Get()
		if shutdown {
			return
		}
		l.handle(ctx, key)
		l.queue.Done(key)
	}
}

func (l *Loop[R]) handle(ctx context.Context, key string) {
	if ctx.Err() != nil {
		return
	}
	taken := l.ledger.take(key)
	began := l.Clock.Now()
	err := l.call(ctx, key)
	kind := l.settle(ctx, key, err)
	if kind.settled() {
		l.ledger.settle(taken)
	}
	l.Metrics.observe(kind, l.Clock.Since(began))
}

// settle acts on a handler's result and says what it was.
func (l *Loop[R]) settle(ctx context.Context, key string, err error) result {
	if err == nil {
		l.backoff.Forget(key)
		return resultSettled
	}
	if ctx.Err() != nil {
		return resultInterrupted
	}
	if d, why, ok := outcome.AsWait(err); ok {
		l.Log.Debug("waiting", "loop", l.Name, "key", key, "why", why, "for", d)
		l.queue.AddAfter(key, max(d, time.Millisecond))
		return resultWait
	}
	if d, why, ok := outcome.AsPark(err); ok {
		l.backoff.Forget(key)
		l.Log.Debug("parked", "loop", l.Name, "key", key, "why", why, "for", d)
		l.queue.AddAfter(key, max(d, time.Millisecond))
		return resultPark
	}
	if _, why, ok := outcome.AsTerminal(err); ok {
		l.Log.Error("gave up", "loop", l.Name, "key", key, "why", why, "error", err)
		if l.GiveUp == nil {
			return resultTerminal
		}
		if err = l.GiveUp(ctx, key, err); err == nil {
			return resultTerminal
		}
	}
	delay := l.backoff.When(key)
	l.Log.Error("handling failed, trying again", "loop", l.Name, "key", key, "in", delay, "error", err)
	l.queue.AddAfter(key, delay)
	return resultError
}

// call runs Handle and turns a panic into an error.
func (l *Loop[R]) call(ctx context.Context, key string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return l.Handle(ctx, key)
}

// commit stores the settled position now and then.
func (l *Loop[R]) commit(ctx context.Context) {
	ticker := l.Clock.NewTicker(commitEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			l.commitOnce(ctx)
			l.Metrics.lag(l.ledger.oldest(), l.queue.Len())
		}
	}
}

func (l *Loop[R]) commitOnce(ctx context.Context) {
	position, ok := l.ledger.settledPosition()
	if !ok {
		return
	}
	if err := l.Feed.Commit(ctx, position); err != nil {
		if !errors.Is(err, context.Canceled) {
			l.Log.Error("committing the feed's position failed, trying again", "loop", l.Name, "error", err)
		}
		return
	}
	l.ledger.committed(position)
	l.Metrics.committed()
}

// Ready says whether the loop keeps up: its backlog was read, and no delivery
// has been unsettled for longer than StuckAfter.
func (l *Loop[R]) Ready() (bool, string) {
	l.init()
	if _, ok := l.started.Load("backlog"); !ok {
		return false, "the backlog is being read"
	}
	if age := l.ledger.oldest(); age > l.StuckAfter {
		return false, fmt.Sprintf("a delivery has been unsettled for %s", age.Round(time.Second))
	}
	return true, "keeping up"
}
