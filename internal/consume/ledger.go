package consume

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// delivery is one item of the feed that waits to be settled.
type delivery struct {
	position string
	received time.Time
	settled  bool
}

// ledger keeps deliveries in the feed's order and knows the lowest contiguous
// settled position.
type ledger struct {
	clock clock.PassiveClock

	mu        sync.Mutex
	order     []*delivery
	byKey     map[string][]*delivery
	position  string // lowest contiguous settled
	dirty     bool   // position is not committed yet
	unsettled int
	room      chan struct{}
}

func newLedger(c clock.PassiveClock) *ledger {
	return &ledger{clock: c, byKey: map[string][]*delivery{}, room: make(chan struct{}, 1)}
}

func (l *ledger) receive(key, position string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := &delivery{position: position, received: l.clock.Now()}
	l.order = append(l.order, d)
	l.byKey[key] = append(l.byKey[key], d)
	l.unsettled++
}

// take returns the deliveries of a key that a handling which starts now covers.
func (l *ledger) take(key string) taken {
	l.mu.Lock()
	defer l.mu.Unlock()
	return taken{key: key, n: len(l.byKey[key])}
}

// taken are the first n deliveries of a key. Keys are handled serially, so
// they are still the first n when the handling ends.
type taken struct {
	key string
	n   int
}

func (l *ledger) settle(t taken) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.byKey[t.key]
	for _, d := range list[:t.n] {
		d.settled = true
		l.unsettled--
	}
	if rest := list[t.n:]; len(rest) > 0 {
		l.byKey[t.key] = rest
	} else {
		delete(l.byKey, t.key)
	}
	n := 0
	for n < len(l.order) && l.order[n].settled {
		l.position, l.dirty = l.order[n].position, true
		n++
	}
	l.order = l.order[n:]
	select {
	case l.room <- struct{}{}:
	default:
	}
}

func (l *ledger) settledPosition() (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.position, l.dirty
}

func (l *ledger) committed(position string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.position == position {
		l.dirty = false
	}
}

// oldest is the age of the oldest unsettled delivery, or 0.
func (l *ledger) oldest() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.order) == 0 {
		return 0
	}
	return l.clock.Since(l.order[0].received)
}

// waitBelow blocks while limit or more deliveries are unsettled.
func (l *ledger) waitBelow(ctx context.Context, limit int) {
	for {
		l.mu.Lock()
		full := l.unsettled >= limit
		l.mu.Unlock()
		if !full {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-l.room:
		}
	}
}
