package reconciler

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/node-drainer/decision"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// unfinished are the eviction statuses that something may follow.
func unfinished() []record.Eviction {
	return []record.Eviction{record.EvictionUnset, record.EvictionInProgress}
}

// Owed selects the faults in quarantine, or out of it again, whose drain is
// not over; of one node, or of all when node is empty.
func Owed(node string) record.Selector {
	return record.Selector{
		Name: "DrainOwed", Node: node, Healthy: record.No(),
		Quarantined: []record.Quarantine{record.Quarantined, record.AlreadyQuarantined, record.QuarantineCanceled},
		Evictions:   unfinished(),
	}
}

// Outstanding selects the backlog: drains that are owed, or to be kept up, of
// all nodes.
func Outstanding() record.Selector {
	return record.Selector{Name: "DrainBacklog", Any: []record.Selector{Owed(""), kept()}}
}

// OfNode selects what a decision looks at: what is owed, all open faults, and the
// faults of the session whose drain succeeded.
func OfNode(node, session string) record.Selector {
	s := record.Selector{
		Name: "DrainOfNode", Node: node, Healthy: record.No(),
		Any: []record.Selector{Owed(""), {Open: record.Yes()}},
	}
	if session != "" {
		s.Any = append(s.Any, record.Selector{Session: session, Evictions: []record.Eviction{record.EvictionSucceeded}})
	}
	return s
}

// snapshot is what one pass sees: the facts, and the Node they were read from.
type snapshot struct {
	view decision.View
	node *corev1.Node
}

// observe reads the facts of a node: records from the store, the Node and its
// pods from the caches.
func (rc *Reconciler) observe(ctx context.Context, name string, n *notes) (snapshot, error) {
	node, err := rc.cluster.Node(name)
	if err != nil {
		return snapshot{}, err
	}
	pods, err := rc.cluster.Pods(name)
	if err != nil {
		return snapshot{}, err
	}
	sc := snapshot{node: node, view: decision.View{Node: decision.NodeOf(node), Pods: pods}}
	if err := rc.list(ctx, name, &sc); err != nil {
		return snapshot{}, err
	}
	n.recall(&sc.view, rc.cluster.allows)
	return sc, nil
}

// list reads the records of a node and its session.
func (rc *Reconciler) list(ctx context.Context, name string, sc *snapshot) error {
	records, err := rc.records.List(ctx, store.Query{Selector: OfNode(name, sc.view.Node.Session)})
	if err != nil {
		return fmt.Errorf("listing the records of node %s: %w", name, err)
	}
	for _, r := range records {
		crashpoint.DieOf(r.Event.Message)
	}
	sc.view.Records = records
	return nil
}

// confirm reads the Node, and the pods if asked to, from the API server. The
// Node comes first: what was bound to it before it was cordoned is then listed.
// A list of pods takes the API server a tenth of a second, in which
// fault-quarantine mostly stamps that it has marked the Node; the records are
// read again after it, so that the drain's stamp is not lost to that one.
func (rc *Reconciler) confirm(ctx context.Context, name string, sc snapshot, pods bool) (snapshot, error) {
	node, err := rc.cluster.LiveNode(ctx, name)
	if err != nil {
		return sc, err
	}
	sc.node, sc.view.Node = node, decision.NodeOf(node)
	if pods {
		if sc.view.Pods, err = rc.cluster.LivePods(ctx, name); err != nil {
			return sc, err
		}
		if err := rc.list(ctx, name, &sc); err != nil {
			return sc, err
		}
	}
	return sc, nil
}

// kept selects the drained faults that are not repaired.
func kept() record.Selector {
	return record.Selector{Open: record.Yes(), Evictions: []record.Eviction{record.EvictionSucceeded, record.AlreadyDrained}, Remediated: "null"}
}
