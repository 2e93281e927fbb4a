package quota

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/nvidia/nvsentinel/fault-quarantine/budget"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// admit decides on the whole queue, with the labels that the cache has. The caller
// holds the lock.
func (q *Queue) admit(now time.Time) (budget.Decision, error) {
	nodes, err := q.count(now)
	if err != nil {
		return budget.Decision{}, err
	}
	known := make(map[string]budget.Node, len(nodes))
	for _, n := range nodes {
		known[n.Name] = n
	}
	queue := make([]budget.Candidate, 0, len(q.waiting))
	for _, w := range q.waiting {
		if n, ok := known[w.Name]; ok {
			w.Counted, w.Labels = n.Counted, n.Labels
		}
		queue = append(queue, w.Candidate)
	}
	return budget.Admit(q.rules.Limits, nodes, queue, now), nil
}

// count lists the nodes as the cache and the places have them together: a
// cache that lags behind can only count too many. The caller holds the lock.
func (q *Queue) count(now time.Time) ([]budget.Node, error) {
	cached, err := q.nodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing the cached nodes: %w", err)
	}
	out := make([]budget.Node, 0, len(cached))
	present := make(map[string]bool, len(q.taken))
	for _, node := range cached {
		n := budget.Node{
			Name: node.Name, Labels: node.Labels,
			Counted: q.rules.Counted.Matches(labels.Set(node.Labels)), InSession: nodemark.Session(node) != "",
		}
		if p, has := q.taken[node.Name]; has {
			n.InSession, n.Began = true, p.Began
			present[node.Name] = true
		}
		out = append(out, n)
	}
	for name, p := range q.taken {
		switch {
		case present[name]:
			p.absent = time.Time{}
		case p.absent.IsZero():
			p.absent = now
		}
		q.taken[name] = p
		if !present[name] && now.Sub(p.absent) < absence {
			out = append(out, budget.Node{Name: name, Labels: p.labels, InSession: true, Began: p.Began})
		}
	}
	return out, nil
}
