package watch

import (
	"sync"

	"k8s.io/client-go/util/workqueue"
)

// backlog holds the objects that are looked at again although nothing is known
// to have changed. They enter the queue only while it is short, so that a change
// waits behind a few of them and not behind all.
type backlog struct {
	queue workqueue.TypedInterface[item]
	short int // length up to which the queue is filled

	mu      sync.Mutex
	items   []item
	waiting map[item]bool // those in items; nil if there are none
}

// add appends objects; those that wait already keep their place.
func (b *backlog) add(items []item) {
	b.mu.Lock()
	if b.waiting == nil {
		b.waiting = make(map[item]bool, len(items))
	}
	for _, i := range items {
		if !b.waiting[i] {
			b.waiting[i] = true
			b.items = append(b.items, i)
		}
	}
	b.mu.Unlock()
	b.feed()
}

// feed fills the queue up. It is called whenever an object was dealt with, so
// that nothing waits here while the queue is empty.
func (b *backlog) feed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.items) > 0 && b.queue.Len() < b.short {
		next := b.items[0]
		b.items = b.items[1:]
		delete(b.waiting, next)
		b.queue.Add(next)
	}
	if len(b.items) == 0 {
		b.items, b.waiting = nil, nil // neither gives back what it grew to
	}
}
