// Package quota admits nodes into quarantine within the budget and queues the rest: it
// reserves capacity under one lock before a session opens, and enqueues the node that has
// waited longest when capacity becomes available. It counts the Nodes with a session and the
// sessions of the open records, which are written first, so that a restarted service or the
// next leader finds all of them again.
package quota

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/fault-quarantine/budget"
)

const (
	// queuePollInterval is how often the queue is looked at without any news: windows pass
	// and absences end by time alone.
	queuePollInterval = 5 * time.Second
	// absence is how long a session whose Node is deleted keeps its place.
	absence = 15 * time.Minute
)

// ErrNotOpen means that the sessions in the store, or the Nodes, are not read
// yet, so that nothing is known about the budget.
var ErrNotOpen = errors.New("the quarantine budget is not loaded yet")

// Cache has Nodes, from an informer.
type Cache interface {
	List(labels.Selector) ([]*corev1.Node, error)
	Get(name string) (*corev1.Node, error)
}

// Rules are what an operator can change while the service runs.
type Rules struct {
	Limits []budget.Limit
	// Counted chooses the nodes that percentages are taken of.
	Counted labels.Selector
}

// Session is one session that uses the budget.
type Session struct {
	Node, Session string
	// Began is when the session was opened.
	Began time.Time

	labels map[string]string
	absent time.Time // since when the Node is seen to be missing
}

// Waiter is a node in the queue.
type Waiter struct {
	budget.Candidate
	// Since is when its oldest fault was held.
	Since time.Time
}

// Queue holds the places, and the nodes that wait for one. It is safe for concurrent
// use.
type Queue struct {
	nodes  Cache
	synced func() (bool, string)
	clock  clock.WithTicker
	wake   chan struct{}

	mu      sync.Mutex
	rules   Rules
	open    bool
	taken   map[string]Session
	waiting map[string]Waiter
	// ledger counts the nodes of the cache and of taken; nil before the first look, and
	// after a change of the rules. absent are the names of taken that the cache lacks.
	ledger *budget.Ledger
	absent map[string]bool
}

// New makes a queue that is closed until Open. synced reports whether the cache
// has been filled.
func New(nodes Cache, synced func() (bool, string), c clock.WithTicker, rules Rules) *Queue {
	return &Queue{
		nodes: nodes, synced: synced, clock: c, rules: rules,
		wake: make(chan struct{}, 1), taken: map[string]Session{}, waiting: map[string]Waiter{},
	}
}

// Open lets places be taken, after the sessions of all open records and the
// nodes whose faults are held were read from the store.
func (q *Queue) Open(taken []Session, waiting []Waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range taken {
		if _, known := q.taken[p.Node]; !known {
			q.taken[p.Node] = p
		}
	}
	for _, w := range waiting {
		if _, known := q.taken[w.Name]; !known {
			q.waiting[w.Name] = w
		}
	}
	q.open, q.ledger = true, nil
	q.Poke()
}

// Set takes over other rules.
func (q *Queue) Set(r Rules) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.rules, q.ledger = r, nil
	q.Poke()
}

// Take takes a place for the session that the candidate wants to open. Without
// capacity, or with older ones waiting for it, the candidate is queued and why is
// what it waits for. A node that has a place keeps it, and so does one whose Node
// bears a session that the store has forgotten: it is out of service already, and
// counted.
func (q *Queue) Take(c budget.Candidate, session string) (granted bool, why string, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ok, _ := q.synced(); !ok || !q.open {
		return false, "", ErrNotOpen
	}
	now := q.clock.Now()
	if p, has := q.taken[c.Name]; has {
		p.Session = session
		q.taken[c.Name] = p
		return true, "", nil
	}
	if c.InSession {
		q.give(c, session, now)
		return true, "", nil
	}
	w, queued := q.waiting[c.Name]
	if !queued {
		w.Since = now
	}
	w.Candidate = c
	q.waiting[c.Name] = w
	if why, err = q.refuses(c, now); err != nil || why != "" {
		return false, why, err
	}
	q.give(c, session, now)
	return true, "", nil
}

// give gives a place. The caller holds the lock.
func (q *Queue) give(c budget.Candidate, session string, now time.Time) {
	delete(q.waiting, c.Name)
	q.taken[c.Name] = Session{Node: c.Name, Session: session, Began: now, labels: c.Labels}
	q.recounted(c.Name)
}

// recounted counts a node whose place was taken or left. The caller holds the lock.
func (q *Queue) recounted(name string) {
	if q.ledger != nil {
		q.count(name)
	}
}

// Settle takes over the result for a node: the session it is in, or none.
// Either way it waits for nothing.
func (q *Queue) Settle(node, session string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.waiting, node)
	p, has := q.taken[node]
	switch {
	case session == "" && has:
		delete(q.taken, node)
		q.recounted(node)
		q.Poke()
	case session != "" && !has:
		q.taken[node] = Session{Node: node, Session: session, Began: q.clock.Now()}
		q.recounted(node)
	case session != "":
		p.Session = session
		q.taken[node] = p
	}
}

// Leave takes a node out of the queue because nothing can be decided about it now,
// so that it stands in nobody's way.
func (q *Queue) Leave(node string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, queued := q.waiting[node]; queued {
		delete(q.waiting, node)
		q.Poke()
	}
}

// Poke has the queue looked at.
func (q *Queue) Poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Source enqueues the nodes for which there is capacity, the oldest first, until ctx
// ends.
func (q *Queue) Source(ctx context.Context, enqueue func(string)) error {
	ticker := q.clock.NewTicker(queuePollInterval)
	defer ticker.Stop()
	for {
		names, err := q.next()
		if err != nil {
			return err
		}
		for _, name := range names {
			enqueue(name)
		}
		select {
		case <-q.wake:
		case <-ticker.C():
			q.forget()
		case <-ctx.Done():
			return nil
		}
	}
}

// forget has every node counted again: whatever was missed is made good.
func (q *Queue) forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ledger = nil
}

func (q *Queue) next() ([]string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ok, _ := q.synced(); !ok || !q.open || len(q.waiting) == 0 {
		return nil, nil
	}
	d, err := q.admit(q.clock.Now())
	return d.Granted, err
}
