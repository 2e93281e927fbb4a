package drain

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/node-drainer/plan"
)

// memory is what the process remembers of the nodes with work: it paces tries
// and reports, and says whose changes matter. Nothing in it decides; a restart
// loses it without harm.
type memory struct {
	mu    sync.Mutex
	nodes map[string]*notes
}

// notes belong to the handler of one node, which is serial; what other
// goroutines read is guarded by memory.mu.
type notes struct {
	tries map[types.UID]try
	// reported is when progress was last written.
	reported time.Time
	// announced are the events already written, or said in a dry run.
	announced map[event]bool
	patched   patched
	// news: a record changed right after this room's stamp.
	news bool
}

// patched is our own last write of the Node, which the cache may not show yet.
type patched struct {
	before string // resourceVersion
	after  *corev1.Node
}

// current is the Node as far as we know: our own write, if the cache still
// shows what it was made from.
func (n *notes) current(cached *corev1.Node) *corev1.Node {
	if cached != nil && n.patched.after != nil && n.patched.before == cached.ResourceVersion {
		return n.patched.after
	}
	return cached
}

// try is an attempt with the budget that refused it, as it was then.
type try struct {
	plan.Attempt
	refuser budget
}

func newMemory() *memory { return &memory{nodes: map[string]*notes{}} }

// open makes a node's changes matter from now on.
func (m *memory) open(node string) *notes {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.nodes[node]
	if !ok {
		n = &notes{tries: map[types.UID]try{}, announced: map[event]bool{}}
		m.nodes[node] = n
	}
	return n
}

// close forgets a node that has no work left.
func (m *memory) close(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.nodes, node)
}

func (m *memory) knows(node string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.nodes[node]
	return ok
}

// size is how many nodes have work.
func (m *memory) size() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.nodes)
}

// refusedBy lists the nodes with a pod that the budget refused to let go.
func (m *memory) refusedBy(name string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var nodes []string
	for node, n := range m.nodes {
		for _, t := range n.tries {
			if t.Result == plan.Refused && t.refuser.name == name {
				nodes = append(nodes, node)
				break
			}
		}
	}
	slices.Sort(nodes)
	return nodes
}

// note remembers a try; tries in a row that were not accepted are counted.
func (m *memory) note(n *notes, pod types.UID, t try) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.Result != plan.Accepted {
		t.Tries = n.tries[pod].Tries + 1
	}
	n.tries[pod] = t
}

// attempts are the tries on the pods that are still there; others are forgotten.
func (m *memory) attempts(n *notes, pods []*corev1.Pod, allows func(budget) bool) map[types.UID]plan.Attempt {
	m.mu.Lock()
	defer m.mu.Unlock()
	left := map[types.UID]try{}
	out := map[types.UID]plan.Attempt{}
	for _, p := range pods {
		t, ok := n.tries[p.UID]
		if !ok {
			continue
		}
		left[p.UID] = t
		t.Allows = t.Result == plan.Refused && allows(t.refuser)
		out[p.UID] = t.Attempt
	}
	n.tries = left
	return out
}
