package consume

import "time"

// ledger keeps the deliveries of a feed in order and knows the lowest
// contiguous settled position. Positions are opaque. Settled deliveries
// between unsettled ones are folded into one entry, and a key has at most two
// unsettled entries, so that its size follows the number of keys with unsettled
// work and not how much one of them says. It is not safe for concurrent use.
type ledger struct {
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

// delivery is one entry of the ledger.
type delivery struct {
	prev, next *delivery
	// number is that of the last delivery that the entry stands for.
	number   uint64
	key      string
	position string
	at       time.Time
	settled  bool
}

func newLedger() *ledger { return &ledger{byKey: map[string][]*delivery{}} }

// receive adds a delivery to the end. One of a key that has its entries already
// is merged into the last of them: that one then settles with it, and holds the
// position before both; the new place is as good as settled.
func (g *ledger) receive(key, position string, at time.Time) {
	g.count++
	d := &delivery{prev: g.tail, number: g.count, key: key, position: position, at: at}
	if g.tail == nil {
		g.head = d
	} else {
		g.tail.next = d
	}
	g.tail = d
	waiting := g.byKey[key]
	if len(waiting) == perKey {
		waiting[perKey-1].number = d.number
		d.settled = true
		g.fold(d)
		return
	}
	g.unsettled++
	g.byKey[key] = append(waiting, d)
}

// settle marks the deliveries of key that were received no later than number
// upTo and tells whether the contiguous position has moved.
func (g *ledger) settle(key string, upTo uint64) bool {
	waiting := g.byKey[key]
	n := 0
	for n < len(waiting) && waiting[n].number <= upTo {
		waiting[n].settled = true
		g.unsettled--
		g.fold(waiting[n])
		n++
	}
	if n == len(waiting) {
		delete(g.byKey, key)
	} else {
		g.byKey[key] = waiting[n:]
	}
	return g.advance()
}

// fold removes the settled neighbour before d and, when the next one is
// settled as well, d itself: only the last position of a settled run matters.
func (g *ledger) fold(d *delivery) {
	if d.prev != nil && d.prev.settled {
		g.remove(d.prev)
	}
	if d.next != nil && d.next.settled {
		g.remove(d)
	}
}

func (g *ledger) remove(d *delivery) {
	if d.prev == nil {
		g.head = d.next
	} else {
		d.prev.next = d.next
	}
	if d.next == nil {
		g.tail = d.prev
	} else {
		d.next.prev = d.prev
	}
}

// advance drops settled deliveries from the front.
func (g *ledger) advance() bool {
	advanced := false
	for g.head != nil && g.head.settled {
		g.done, g.moved, advanced = g.head.position, true, true
		g.remove(g.head)
	}
	return advanced
}

// oldest is the unsettled delivery that holds the position.
func (g *ledger) oldest() (key string, at time.Time, ok bool) {
	if g.head == nil {
		return "", time.Time{}, false
	}
	return g.head.key, g.head.at, true
}
