package consume

import (
	"context"
	"slices"
	"time"
)

// tracker keeps the deliveries of a feed in order and knows the lowest
// contiguous settled position. Positions are opaque. Settled deliveries
// between unsettled ones are folded into one entry, and a key has at most two
// unsettled entries, so that its size follows the number of keys with unsettled
// work and not the number of deliveries of one key. It is not safe for concurrent use.
type tracker struct {
	head, tail *delivery
	unsettled  int
	// count numbers the deliveries as they are received, from 1.
	count uint64
	byKey map[string][]*delivery // unsettled ones in order, at most perKey
	// done is the position up to which everything is settled.
	done  string
	moved bool // done has not been taken yet
}

// perKey bounds a key's unsettled entries: the first holds the position, and the
// second stands for all that came after it.
const perKey = 2

// delivery is one entry of the tracker.
type delivery struct {
	prev, next *delivery
	// number is that of the last delivery that the entry stands for.
	number   uint64
	key      string
	position string
	at       time.Time
	settled  bool
}

func newTracker() *tracker { return &tracker{byKey: map[string][]*delivery{}} }

// receive adds a delivery to the end. One of a key that has its entries already
// is merged into the last of them: that one then settles with it, and holds the
// position before both; the new place is as good as settled.
func (t *tracker) receive(key, position string, at time.Time) {
	t.count++
	d := &delivery{prev: t.tail, number: t.count, key: key, position: position, at: at}
	if t.tail == nil {
		t.head = d
	} else {
		t.tail.next = d
	}
	t.tail = d
	waiting := t.byKey[key]
	if len(waiting) == perKey {
		waiting[perKey-1].number = d.number
		d.settled = true
		t.fold(d)
		return
	}
	t.unsettled++
	t.byKey[key] = append(waiting, d)
}

// settle marks the deliveries of key that were received no later than number
// upTo and reports whether the contiguous position has moved.
func (t *tracker) settle(key string, upTo uint64) bool {
	waiting := t.byKey[key]
	n := 0
	for n < len(waiting) && waiting[n].number <= upTo {
		waiting[n].settled = true
		t.unsettled--
		t.fold(waiting[n])
		n++
	}
	if n == len(waiting) {
		delete(t.byKey, key)
	} else {
		t.byKey[key] = waiting[n:]
	}
	return t.advance()
}

// fold removes the settled neighbour before d and, when the next one is
// settled as well, d itself: only the last position of a settled run matters.
func (t *tracker) fold(d *delivery) {
	if d.prev != nil && d.prev.settled {
		t.remove(d.prev)
	}
	if d.next != nil && d.next.settled {
		t.remove(d)
	}
}

func (t *tracker) remove(d *delivery) {
	if d.prev == nil {
		t.head = d.next
	} else {
		d.prev.next = d.next
	}
	if d.next == nil {
		t.tail = d.prev
	} else {
		d.next.prev = d.prev
	}
}

// advance drops settled deliveries from the front.
func (t *tracker) advance() bool {
	advanced := false
	for t.head != nil && t.head.settled {
		t.done, t.moved, advanced = t.head.position, true, true
		t.remove(t.head)
	}
	return advanced
}

// oldest is the unsettled delivery that holds the position.
func (t *tracker) oldest() (key string, at time.Time, ok bool) {
	if t.head == nil {
		return "", time.Time{}, false
	}
	return t.head.key, t.head.at, true
}

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
