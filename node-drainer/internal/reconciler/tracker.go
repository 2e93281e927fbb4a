package reconciler

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/node-drainer/decision"
)

// tracker holds the notes on the nodes with work, and so says whose changes
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
	// reported is when progress was last written.
	reported time.Time
	// announced are the events already written, or said in a dry run.
	announced map[event]bool
	// stoodBack and begun: the drain has stood back for cordons, and does so no more.
	stoodBack, begun bool
}

// try is an attempt with the budget that refused it, as it was then.
type try struct {
	decision.Attempt
	refuser budget
}

func newTracker() *tracker { return &tracker{nodes: map[string]*notes{}} }

// open makes a node's changes matter from now on.
func (t *tracker) open(node string) *notes {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, ok := t.nodes[node]
	if !ok {
		n = &notes{tries: map[types.UID]try{}, announced: map[event]bool{}}
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

// refusedBy lists the nodes with a pod that the budget refused to let go.
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
		if t.Result == decision.Refused && t.refuser.name == budget {
			return true
		}
	}
	return false
}

// note remembers a try; tries in a row that were not accepted are counted.
func (n *notes) note(pod types.UID, t try) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t.Result != decision.Accepted {
		t.Tries = n.tries[pod].Tries + 1
	}
	n.tries[pod] = t
}

// recall adds to a view what is remembered: the tries on its pods, and the last
// report. Tries on other pods are forgotten.
func (n *notes) recall(v *decision.View, allows func(budget) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	left := map[types.UID]try{}
	v.Attempts, v.ReportedAt = map[types.UID]decision.Attempt{}, n.reported
	for _, p := range v.Pods {
		if t, ok := n.tries[p.UID]; ok {
			left[p.UID] = t
			t.Allows = t.Result == decision.Refused && allows(t.refuser)
			v.Attempts[p.UID] = t.Attempt
		}
	}
	n.tries = left
}
