package consume

import (
	"context"
	"slices"
)

// backlog is the deliveries that wait for Items, by key, with their number and weight.
type backlog[R any] struct {
	byKey  map[string]items[R]
	count  int
	weight int
}

// items are the deliveries of one key, oldest first, with their numbers in the tracker.
type items[R any] struct {
	of      []R
	numbers []uint64
}

// keep remembers a delivery for its key's handler. The caller holds the lock.
func (l *Loop[R]) keep(key string, of R) {
	if l.Items == nil || key == "" || key == keyless {
		return
	}
	have := l.waiting.byKey[key]
	l.waiting.byKey[key] = items[R]{append(have.of, of), append(have.numbers, l.tracker.count)}
	l.waiting.count++
	l.waiting.weight += l.Weight(of)
}

// call calls the handler; of items it settles those that are done.
func (l *Loop[R]) call(ctx context.Context, key string) error {
	if l.Items == nil {
		return l.Handle(ctx, key)
	}
	waiting := l.Waiting(key)
	if len(waiting) == 0 {
		return nil
	}
	done, err := l.Items(ctx, key, waiting)
	l.take(key, done)
	return err
}

// take settles the first n items of a key.
func (l *Loop[R]) take(key string, n int) {
	if n == 0 {
		return
	}
	l.mu.Lock()
	have := l.waiting.byKey[key]
	upTo := have.numbers[n-1]
	for _, one := range have.of[:n] {
		l.waiting.weight -= l.Weight(one)
	}
	l.waiting.count -= n
	clear(have.of[:n]) // the array stays while later ones wait
	if l.waiting.byKey[key] = (items[R]{have.of[n:], have.numbers[n:]}); len(have.of) == n {
		delete(l.waiting.byKey, key)
	}
	l.mu.Unlock()
	l.settle(key, upTo)
}

// Waiting are the deliveries of a key that Items has not done, oldest first; they are
// the caller's until Items returns.
func (l *Loop[R]) Waiting(key string) []R {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clip(l.waiting.byKey[key].of)
}

// Oldest visits the oldest delivery of each key that Items has not done.
func (l *Loop[R]) Oldest(visit func(R)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, have := range l.waiting.byKey {
		visit(have.of[0])
	}
}

// goOn has a key handled again of which items wait that came, or were left, during
// the handling.
func (l *Loop[R]) goOn(key string) {
	l.mu.Lock()
	left := len(l.waiting.byKey[key].of) > 0
	l.mu.Unlock()
	if left {
		l.queue.Add(key)
	}
}
