package matching

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nvidia/nvsentinel/health-events-analyzer/decision"
)

// nodes keeps the windows of the nodes that had news last. What a feed delivers is kept
// here until the node is handled, so that a window that was read once needs no store any
// more: the feed brings what comes after. A window can be dropped whenever its node is at
// rest, because all that was delivered is in the store.
type nodes struct {
	max int // events of all windows
	// cluster is the window of all nodes; it is never dropped.
	cluster node
	// sharing is true if the cluster gets what the feeds deliver.
	sharing atomic.Bool

	mu     sync.Mutex
	byName map[string]*node
	total  int
	turn   int64
}

// node is one node's window. Its fields up to inbox are of the worker that
// handles it, by work; the others are under nodes.mu.
type node struct {
	work    sync.Mutex
	window  *decision.Window
	rules   *ruleSet  // those of the window
	from    time.Time // the earliest news that were not evaluated
	changed bool

	inbox []delivery
	size  int // of the window
	users int
	turn  int64
	// shared counts the node's news that the cluster got, settled those of them
	// that are evaluated there.
	shared, settled int
}

func newNodes(most int) *nodes { return &nodes{max: most, byName: map[string]*node{}} }

// since notes that events from a time on have to be evaluated.
func (n *node) since(from time.Time) {
	if !n.changed || from.Before(n.from) {
		n.from = from
	}
	n.changed = true
}

func (nd *nodes) get(name string) *node {
	n := nd.byName[name]
	if n == nil {
		n = &node{}
		nd.byName[name] = n
	}
	return n
}

// delivery is what a feed brought.
type delivery struct {
	*decision.Fact
	// trigger is true if the event is to be evaluated whether or not it is known.
	trigger bool
}

// deposit keeps a delivery until its node is handled.
func (nd *nodes) deposit(x delivery) {
	nd.mu.Lock()
	defer nd.mu.Unlock()
	n := nd.get(x.Record.Event.NodeName)
	n.inbox = append(n.inbox, x)
}

// enter gives the node to the caller alone until leave.
func (nd *nodes) enter(name string) *node {
	nd.mu.Lock()
	n := nd.get(name)
	n.users++
	nd.mu.Unlock()
	n.work.Lock()
	return n
}

// enterCluster gives the cluster's window to the caller alone until leave.
func (nd *nodes) enterCluster() *node {
	nd.cluster.work.Lock()
	nd.mu.Lock()
	defer nd.mu.Unlock()
	nd.cluster.users++
	return &nd.cluster
}

// share keeps a delivery for the cluster, too: its node has it evaluated.
func (nd *nodes) share(x delivery) {
	nd.mu.Lock()
	defer nd.mu.Unlock()
	nd.cluster.inbox = append(nd.cluster.inbox, x)
	nd.get(x.Record.Event.NodeName).shared++
}

// wake has the cluster's window looked at for a node without news.
func (nd *nodes) wake(name string) {
	nd.sharing.Store(true)
	nd.mu.Lock()
	defer nd.mu.Unlock()
	nd.get(name).shared++
}

// owed is how many of a node's shared news are counted so far, if any of them is
// not settled.
func (nd *nodes) owed(name string) (shared int, ok bool) {
	nd.mu.Lock()
	defer nd.mu.Unlock()
	n := nd.byName[name]
	if n == nil || n.shared == n.settled {
		return 0, false
	}
	return n.shared, true
}

// settle records that the cluster has evaluated a node's news up to a count.
func (nd *nodes) settle(name string, shared int) {
	nd.mu.Lock()
	defer nd.mu.Unlock()
	n := nd.get(name)
	n.settled = max(n.settled, shared)
}

// takePending takes the deliveries that were kept.
func (nd *nodes) takePending(n *node) []delivery {
	nd.mu.Lock()
	defer nd.mu.Unlock()
	news := n.inbox
	n.inbox = nil
	return news
}

func (nd *nodes) leave(n *node) {
	size := 0
	if n.window != nil {
		size = n.window.Len()
	}
	resting := !n.changed
	n.work.Unlock()
	nd.mu.Lock()
	defer nd.mu.Unlock()
	nd.total += size - n.size
	nd.turn++
	n.size, n.turn = size, nd.turn
	if n.users--; nd.total > nd.max && resting {
		nd.drop()
	}
}

// drop lets the windows go that were not used for the longest time, down to
// nine tenths of what is allowed.
func (nd *nodes) drop() {
	type candidate struct {
		name string
		*node
	}
	var idle []candidate
	for name, n := range nd.byName {
		// What waits in the inbox, or was not evaluated, is not done.
		if n.users == 0 && len(n.inbox) == 0 && !n.changed && n.shared == n.settled {
			idle = append(idle, candidate{name, n})
		}
	}
	slices.SortFunc(idle, func(x, y candidate) int { return cmp.Compare(x.turn, y.turn) })
	for _, c := range idle {
		if nd.total <= nd.max*9/10 {
			return
		}
		nd.total -= c.size
		delete(nd.byName, c.name)
	}
}

// count is the number of events in memory.
func (nd *nodes) count() float64 {
	nd.mu.Lock()
	defer nd.mu.Unlock()
	return float64(nd.total)
}
