// Package places keeps the places of the quarantine budget: it takes one under
// one lock before a session opens, queues the nodes for which there is none,
// and rings the oldest when there is room. What is counted are the Nodes that
// bear a session and the sessions of the open records, which are written first:
// a restarted service or the next leader finds them all again.
package places

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
	// look is how often the queue is looked at without any news: windows pass
	// and absences end by time alone.
	look = 5 * time.Second
	// absence is how long a session whose Node is deleted keeps its place.
	absence = 15 * time.Minute
)

// ErrNotOpen means that the sessions in the store, or the Nodes, are not read
// yet, so that nothing is known about the budget.
var ErrNotOpen = errors.New("the quarantine budget is not read yet")

// Cache lists Nodes, from an informer.
type Cache interface {
	List(labels.Selector) ([]*corev1.Node, error)
}

// Rules are what an operator can change while the service runs.
type Rules struct {
	Limits []budget.Limit
	// Counted chooses the nodes that percentages are taken of.
	Counted labels.Selector
}

// Place is one session that uses the budget.
type Place struct {
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

// Book holds the places. It is safe for concurrent use.
type Book struct {
	nodes  Cache
	synced func() (bool, string)
	clock  clock.WithTicker
	wake   chan struct{}

	mu      sync.Mutex
	rules   Rules
	open    bool
	taken   map[string]Place
	waiting map[string]Waiter
}

// New makes a book that is closed until Open. synced says whether the cache
// has been filled.
func New(nodes Cache, synced func() (bool, string), c clock.WithTicker, rules Rules) *Book {
	return &Book{
		nodes: nodes, synced: synced, clock: c, rules: rules,
		wake: make(chan struct{}, 1), taken: map[string]Place{}, waiting: map[string]Waiter{},
	}
}

// Open lets places be taken, after the sessions of all open records and the
// nodes whose faults are held were read from the store.
func (b *Book) Open(taken []Place, waiting []Waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range taken {
		if _, known := b.taken[p.Node]; !known {
			b.taken[p.Node] = p
		}
	}
	for _, w := range waiting {
		if _, known := b.taken[w.Name]; !known {
			b.waiting[w.Name] = w
		}
	}
	b.open = true
	b.Poke()
}

// Set takes over other rules.
func (b *Book) Set(r Rules) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rules = r
	b.Poke()
}

// Take takes a place for the session that the candidate wants to open. Without
// room, or with older ones waiting for it, the candidate is queued and why says
// what it waits for. A node that has a place keeps it, and so does one whose Node
// bears a session that the store has forgotten: it is out of service already, and
// counted.
func (b *Book) Take(c budget.Candidate, session string) (granted bool, why string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ok, _ := b.synced(); !ok || !b.open {
		return false, "", ErrNotOpen
	}
	now := b.clock.Now()
	if p, has := b.taken[c.Name]; has {
		p.Session = session
		b.taken[c.Name] = p
		return true, "", nil
	}
	if c.InSession {
		b.give(c, session, now)
		return true, "", nil
	}
	w, queued := b.waiting[c.Name]
	if !queued {
		w.Since = now
	}
	w.Candidate = c
	b.waiting[c.Name] = w
	d, err := b.admit(now)
	if err != nil {
		return false, "", err
	}
	if why, refused := d.Refused[c.Name]; refused {
		if len(d.Granted) > 0 {
			b.Poke()
		}
		return false, why, nil
	}
	b.give(c, session, now)
	return true, "", nil
}

// give gives a place. The caller holds the lock.
func (b *Book) give(c budget.Candidate, session string, now time.Time) {
	delete(b.waiting, c.Name)
	b.taken[c.Name] = Place{Node: c.Name, Session: session, Began: now, labels: c.Labels}
}

// Settle says what a look at a node has come to: the session it is in, or none.
// Either way it waits for nothing.
func (b *Book) Settle(node, session string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiting, node)
	p, has := b.taken[node]
	switch {
	case session == "" && has:
		delete(b.taken, node)
		b.Poke()
	case session != "" && !has:
		b.taken[node] = Place{Node: node, Session: session, Began: b.clock.Now()}
	case session != "":
		p.Session = session
		b.taken[node] = p
	}
}

// Leave takes a node out of the queue because nothing can be said about it now,
// so that it stands in nobody's way.
func (b *Book) Leave(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, queued := b.waiting[node]; queued {
		delete(b.waiting, node)
		b.Poke()
	}
}

// Poke has the queue looked at.
func (b *Book) Poke() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Bell rings the nodes for which there is room, the oldest first, until ctx
// ends.
func (b *Book) Bell(ctx context.Context, ring func(string)) error {
	ticker := b.clock.NewTicker(look)
	defer ticker.Stop()
	for {
		names, err := b.next()
		if err != nil {
			return err
		}
		for _, name := range names {
			ring(name)
		}
		select {
		case <-b.wake:
		case <-ticker.C():
		case <-ctx.Done():
			return nil
		}
	}
}

func (b *Book) next() ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ok, _ := b.synced(); !ok || !b.open || len(b.waiting) == 0 {
		return nil, nil
	}
	d, err := b.admit(b.clock.Now())
	return d.Granted, err
}
