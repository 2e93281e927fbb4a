package reconciler

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/internal/eviction"
	"github.com/nvidia/nvsentinel/node-drainer/decision"
)

// tracker holds the notes on the nodes with work, and so knows whose changes
// matter.
type tracker struct {
	mu    sync.Mutex
	nodes map[string]*notes
}

// notes are what is remembered of one node from one look to the next. They pace
// tries, reports and Events, and decide nothing: a restart loses them without
// harm. They are forgotten when the node has no work left, and a try when its
// pod is gone.
//
// They belong to the handler of the node, which is serial, but for the tries,
// which evictions note side by side and a budget's change looks through.
type notes struct {
	mu    sync.Mutex
	tries map[types.UID]try
	// owners are the controllers of which a pod was evicted, by UID.
	owners map[string]controller
	// cordoned: the Node was cordoned when they were last counted.
	cordoned bool
	// moved is when an eviction was last let through.
	moved time.Time
	// blocked is why the pods of a drain that waits do not leave.
	blocked []decision.Blocked
	// reported is when progress was last written.
	reported time.Time
	// announced are the events already written, or reported in a dry run.
	announced map[event]bool
	// stoodBack and begun: the drain has stood back for cordons, and does so no more.
	stoodBack, begun bool
}

// try is an attempt with the budgets that refused it, as they were then.
type try struct {
	decision.Attempt
	refusers []budget
}

// controller is what is remembered of one that owns pods: the pod that was evicted last, and when,
// until another takes its place; and how often one did.
type controller struct {
	pod     types.UID
	evicted time.Time
	returns int
}

func newTracker() *tracker { return &tracker{nodes: map[string]*notes{}} }

// open makes a node's changes matter from now on.
func (t *tracker) open(node string) *notes {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, ok := t.nodes[node]
	if !ok {
		n = &notes{tries: map[types.UID]try{}, owners: map[string]controller{}, announced: map[event]bool{}}
		t.nodes[node] = n
	}
	return n
}

// close forgets a node that has no work left.
func (t *tracker) close(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.nodes, node)
}

func (t *tracker) knows(node string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.nodes[node]
	return ok
}

// size is how many nodes have work.
func (t *tracker) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.nodes)
}

// refusedBy lists the nodes with a pod whose eviction the budget refused.
func (t *tracker) refusedBy(budget string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var nodes []string
	for node, n := range t.nodes {
		if n.refusedBy(budget) {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

func (n *notes) refusedBy(budget string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, t := range n.tries {
		if t.Result == decision.Refused && slices.Contains(t.Budgets, budget) {
			return true
		}
	}
	return false
}

// note remembers a try; tries in a row that were not accepted are counted.
func (n *notes) note(pod *corev1.Pod, t try) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t.Result != decision.Accepted {
		t.Tries = n.tries[pod.UID].Tries + 1
	} else {
		n.moved = t.At
		if uid := eviction.Owner(pod); uid != "" {
			n.owners[uid] = controller{pod: pod.UID, evicted: t.At, returns: n.owners[uid].returns}
		}
	}
	n.tries[pod.UID] = t
}

// recall adds to a view what is remembered: the tries on its pods, the pods that came
// back, and the last report. Tries on other pods are forgotten.
func (n *notes) recall(v *decision.View, allows func(*corev1.Pod, []budget) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	left := map[types.UID]try{}
	v.Attempts, v.ReportedAt, v.MovedAt = map[types.UID]decision.Attempt{}, n.reported, n.moved
	for _, p := range v.Pods {
		if t, ok := n.tries[p.UID]; ok {
			left[p.UID] = t
			t.Allows = t.Result == decision.Refused && allows(p, t.refusers)
			v.Attempts[p.UID] = t.Attempt
		}
	}
	n.tries = left
	n.count(v)
}

// count adds how often each controller put a pod back: one that was made after an
// eviction, and at most one for each. It begins again when the Node is cordoned, or is no
// more.
func (n *notes) count(v *decision.View) {
	v.Returns = map[string]int{}
	if v.Node.Unschedulable != n.cordoned {
		n.cordoned = v.Node.Unschedulable
		clear(n.owners)
	}
	for _, p := range v.Pods {
		uid := eviction.Owner(p)
		o, ok := n.owners[uid]
		if !ok {
			continue
		}
		if !o.evicted.IsZero() && p.UID != o.pod && !p.CreationTimestamp.Time.Before(o.evicted.Truncate(time.Second)) {
			o.returns, o.evicted = o.returns+1, time.Time{}
			n.owners[uid] = o
		}
		v.Returns[uid] = o.returns
	}
}

// wait remembers why the pods of a drain do not leave.
func (n *notes) wait(blocked []decision.Blocked) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.blocked = blocked
}

// overdue counts by reason the nodes whose pods have been kept for too long.
func (t *tracker) overdue() map[decision.Reason]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[decision.Reason]int{}
	for _, n := range t.nodes {
		for _, why := range n.overdue() {
			out[why]++
		}
	}
	return out
}

func (n *notes) overdue() []decision.Reason {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []decision.Reason
	for _, b := range n.blocked {
		if b.Overdue {
			out = append(out, b.Why)
		}
	}
	return out
}
