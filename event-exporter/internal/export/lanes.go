package export

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Bounds of what is read ahead of the receiver.
const (
	aheadRecords = 4096
	aheadBytes   = 64 << 20
)

// lane is the records of some nodes in the order of the feed, read and not yet
// settled. A node's records are all in one lane, and a lane sends one request
// at a time: that keeps a node's events in order.
type lane struct {
	name string

	// Only the lane's handler, of which one runs at a time, uses these.
	pauses *backoff.ExponentialBackOff
	// notBefore is when the next request may be sent after a failure.
	notBefore time.Time
	why       string
	// size is how many events the next request may carry.
	size int

	queue []record.Record // guarded by lanes.mu
}

// lanes are all lanes, filled by the feed's reader and emptied by the handlers.
type lanes struct {
	mu      sync.Mutex
	list    []*lane
	byName  map[string]*lane
	records int
	bytes   int
	// held is when the record was accepted that is read and waits for its turn at
	// the bounded rate; zero is none.
	held time.Time
	room chan struct{} // rings when records were settled
}

func newLanes(n, size int, pauses func() *backoff.ExponentialBackOff) *lanes {
	l := &lanes{byName: map[string]*lane{}, room: make(chan struct{}, 1)}
	for i := range n {
		one := &lane{name: fmt.Sprintf("lane-%02d", i), pauses: pauses(), size: size}
		l.list, l.byName[one.name] = append(l.list, one), one
	}
	return l
}

// of is the lane of a record's node.
func (l *lanes) of(r record.Record) *lane {
	h := fnv.New32a()
	h.Write([]byte(r.Event.NodeName))
	return l.list[h.Sum32()%uint32(len(l.list))] //nolint:gosec // the number of lanes is a small positive one
}

// hold notes a record that is not in its lane yet.
func (l *lanes) hold(r record.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = r.CreatedAt
}

// push puts a record at the end of its lane.
func (l *lanes) push(r record.Record) {
	one := l.of(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	one.queue = append(one.queue, r)
	l.held = time.Time{}
	l.records++
	l.bytes += weight(r)
}

// waiting is how many records a lane holds.
func (l *lanes) waiting(one *lane) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(one.queue)
}

// head is the first n records of a lane; they stay in it.
func (l *lanes) head(one *lane, n int) []record.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return one.queue[:n:n]
}

// settle takes the first n records out of a lane.
func (l *lanes) settle(one *lane, n int) {
	l.mu.Lock()
	for i := range n {
		l.bytes -= weight(one.queue[i])
		one.queue[i] = record.Record{}
	}
	one.queue = one.queue[n:]
	l.records -= n
	l.mu.Unlock()
	select {
	case l.room <- struct{}{}:
	default:
	}
}

// awaitRoom blocks while too much is read ahead.
func (l *lanes) awaitRoom(ctx context.Context) error {
	for {
		l.mu.Lock()
		full := l.records >= aheadRecords || l.bytes >= aheadBytes
		l.mu.Unlock()
		if !full {
			return nil
		}
		select {
		case <-l.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// oldest is when the oldest record that is not settled was accepted.
func (l *lanes) oldest() (at time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok = l.held, !l.held.IsZero()
	for _, one := range l.list {
		if len(one.queue) > 0 && (!ok || one.queue[0].CreatedAt.Before(at)) {
			at, ok = one.queue[0].CreatedAt, true
		}
	}
	return at, ok
}

// weight is about what a record takes in memory.
func weight(r record.Record) int {
	n := 1024 + len(r.Event.Message)
	for _, e := range r.Event.EntitiesImpacted {
		n += 32 + len(e.EntityType) + len(e.EntityValue)
	}
	for _, c := range r.Event.ErrorCode {
		n += 16 + len(c)
	}
	for k, v := range r.Event.Metadata {
		n += 64 + len(k) + len(v)
	}
	return n
}
