package desk

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/nvidia/nvsentinel/health-events-analyzer/pattern"
)

// nodes keeps the windows of the nodes that had news last. What a feed delivers
// is put aside here until the node is handled, so that a window that was read
// once needs no store any more: the feed brings what comes after. A window can be
// dropped whenever its node is at rest, because all that was delivered is stored.
type nodes struct {
	max int // events of all windows

	mu     sync.Mutex
	byName map[string]*node
	total  int
	turn   int64
}

// node is one node's window. Its fields up to inbox are of the worker that
// handles it, by work; the others are under nodes.mu.
type node struct {
	work    sync.Mutex
	window  *pattern.Window
	from    time.Time // the earliest news that were not judged
	changed bool

	inbox []delivery
	size  int // of the window
	users int
	turn  int64
}

func newNodes(most int) *nodes { return &nodes{max: most, byName: map[string]*node{}} }

// since notes that events from a time on have to be judged.
func (n *node) since(from time.Time) {
	if !n.changed || from.Before(n.from) {
		n.from = from
	}
	n.changed = true
}

func (b *nodes) get(name string) *node {
	n := b.byName[name]
	if n == nil {
		n = &node{}
		b.byName[name] = n
	}
	return n
}

// delivery is what a feed brought.
type delivery struct {
	*pattern.Fact
	// trigger says that it is to be judged whether or not it is known.
	trigger bool
}

// deposit puts a delivery aside until its node is handled.
func (b *nodes) deposit(x delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.get(x.Record.Event.NodeName)
	n.inbox = append(n.inbox, x)
}

// enter gives the node to the caller alone until leave.
func (b *nodes) enter(name string) *node {
	b.mu.Lock()
	n := b.get(name)
	n.users++
	b.mu.Unlock()
	n.work.Lock()
	return n
}

// news takes what was put aside.
func (b *nodes) news(n *node) []delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	news := n.inbox
	n.inbox = nil
	return news
}

func (b *nodes) leave(n *node) {
	size := 0
	if n.window != nil {
		size = n.window.Len()
	}
	resting := !n.changed
	n.work.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total += size - n.size
	b.turn++
	n.size, n.turn = size, b.turn
	if n.users--; b.total > b.max && resting {
		b.drop()
	}
}

// drop lets the windows go that were not used for the longest time, down to
// nine tenths of what is allowed.
func (b *nodes) drop() {
	type candidate struct {
		name string
		*node
	}
	var idle []candidate
	for name, n := range b.byName {
		// What waits in the inbox, or was not judged, is not done.
		if n.users == 0 && len(n.inbox) == 0 && !n.changed {
			idle = append(idle, candidate{name, n})
		}
	}
	slices.SortFunc(idle, func(x, y candidate) int { return cmp.Compare(x.turn, y.turn) })
	for _, c := range idle {
		if b.total <= b.max*9/10 {
			return
		}
		b.total -= c.size
		delete(b.byName, c.name)
	}
}

// count is the number of events in memory.
func (b *nodes) count() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return float64(b.total)
}
