package quota

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nvidia/nvsentinel/fault-quarantine/budget"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// Changed counts a node as the cache has it now, and has the queue looked at.
func (q *Queue) Changed(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ledger != nil {
		q.count(name)
	}
	q.Poke()
}

// count counts one node as the cache and the places have it together: a cache that lags
// behind can only count too many. The caller holds the lock.
func (q *Queue) count(name string) {
	node, err := q.nodes.Get(name)
	if err != nil && !apierrors.IsNotFound(err) {
		return // an informer's cache has no other error
	}
	q.countAs(name, node)
}

// countAs counts one node as the cache has it; nil is none. The caller holds the lock.
func (q *Queue) countAs(name string, node *corev1.Node) {
	p, has := q.taken[name]
	delete(q.absent, name)
	switch {
	case node != nil:
		p.absent = time.Time{}
		n := budget.Node{
			Name: name, Labels: node.Labels, Counted: q.rules.Counted.Matches(labels.Set(node.Labels)),
			InSession: has || nodemark.Session(node) != "", Began: p.Began,
		}
		q.ledger.Set(n)
	case has:
		if p.absent.IsZero() {
			p.absent = q.clock.Now()
		}
		q.absent[name] = true
		q.ledger.Set(budget.Node{Name: name, Labels: p.labels, InSession: true, Began: p.Began})
	default:
		q.ledger.Remove(name)
	}
	if has {
		q.taken[name] = p
	}
}

// counted is the ledger of now: the places of nodes that are away for long count no more.
// It is made of the whole cache when there is none. The caller holds the lock.
func (q *Queue) counted(now time.Time) (*budget.Ledger, error) {
	if q.ledger == nil {
		if err := q.recount(); err != nil {
			return nil, err
		}
	}
	for name := range q.absent {
		if now.Sub(q.taken[name].absent) >= absence {
			q.ledger.Remove(name)
		}
	}
	return q.ledger, nil
}

// recount counts every node. The caller holds the lock.
func (q *Queue) recount() error {
	cached, err := q.nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing the cached nodes: %w", err)
	}
	q.ledger, q.absent = budget.NewLedger(q.rules.Limits), map[string]bool{}
	present := make(map[string]bool, len(cached))
	for _, node := range cached {
		q.countAs(node.Name, node)
		present[node.Name] = true
	}
	for name := range q.taken {
		if !present[name] {
			q.countAs(name, nil)
		}
	}
	return nil
}

// fromCache is a candidate with what the cache reports about it. The caller holds the lock.
func (q *Queue) fromCache(c budget.Candidate) budget.Candidate {
	if node, err := q.nodes.Get(c.Name); err == nil {
		c.Counted, c.Labels = q.rules.Counted.Matches(labels.Set(node.Labels)), node.Labels
	}
	return c
}

// admit decides on the whole queue. The caller holds the lock.
func (q *Queue) admit(now time.Time) (budget.Decision, error) {
	ledger, err := q.counted(now)
	if err != nil {
		return budget.Decision{}, err
	}
	queue := make([]budget.Candidate, 0, len(q.waiting))
	for _, w := range q.waiting {
		queue = append(queue, q.fromCache(w.Candidate))
	}
	return ledger.Admit(queue, now), nil
}

// refuses returns why a candidate of the queue gets no place now, or nothing. For one that
// does not fit alone, those before it do not matter. The caller holds the lock.
func (q *Queue) refuses(c budget.Candidate, now time.Time) (why string, err error) {
	ledger, err := q.counted(now)
	if err != nil {
		return "", err
	}
	if why := ledger.Refuses(q.fromCache(c), now); why != "" || len(q.waiting) == 1 {
		return why, nil
	}
	d, err := q.admit(now)
	if why = d.Refused[c.Name]; why != "" && len(d.Granted) > 0 {
		q.Poke()
	}
	return why, err
}
