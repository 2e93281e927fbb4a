package watch

import (
	"hash/maphash"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
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

// turns plans when an object is looked at again although nothing is known to
// have changed: once per period, each object at a moment of its own. So the work
// is spread evenly over the period, and no change waits behind all of it.
type turns struct {
	queue  workqueue.TypedDelayingInterface[item]
	period time.Duration
	seed   maphash.Seed
}

func newTurns(c clock.WithTicker, period time.Duration) turns {
	queue := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[item]{Clock: c})
	return turns{queue: queue, period: period, seed: maphash.MakeSeed()}
}

// plan has an object handed over at its next turn, however often it is planned.
func (t *turns) plan(i item, now time.Time) { t.queue.AddAfter(i, t.wait(i, now)) }

// wait is the time until the object's next turn: more than 0, at most the period.
func (t *turns) wait(i item, now time.Time) time.Duration {
	period := uint64(t.period)
	own, passed := maphash.Comparable(t.seed, i)%period, uint64(now.UnixNano())%period
	return time.Duration((own+period-passed-1)%period + 1)
}

// run hands over the objects whose turn has come, until the queue ends.
func (t *turns) run(due func([]item)) {
	for {
		i, done := t.queue.Get()
		if done {
			return
		}
		due([]item{i})
		t.queue.Done(i)
	}
}
