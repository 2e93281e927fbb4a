package drain

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/node-drainer/plan"
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

// OfNode selects what a plan looks at: what is owed, all open faults, and the
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

// scene is what one pass sees: the facts, and the Node and records they were
// read from.
type scene struct {
	view    plan.View
	node    *corev1.Node
	records []record.Record
}

// observe reads the facts of a node: records from the store, the Node and its
// pods from the caches.
func (d *Drain) observe(ctx context.Context, name string, n *notes) (scene, error) {
	node, err := d.world.Node(name)
	if err != nil {
		return scene{}, err
	}
	pods, err := d.world.Pods(name)
	if err != nil {
		return scene{}, err
	}
	sc := scene{node: node, view: plan.View{Node: plan.NodeOf(node), Pods: pods}}
	if err := d.list(ctx, name, &sc); err != nil {
		return scene{}, err
	}
	n.recall(&sc.view, d.world.allows)
	return deaf(sc), nil
}

// list reads the records of a node and its session.
func (d *Drain) list(ctx context.Context, name string, sc *scene) error {
	records, err := d.records.List(ctx, store.Query{Selector: OfNode(name, sc.view.Node.Session)})
	if err != nil {
		return fmt.Errorf("listing the records of node %s: %w", name, err)
	}
	for _, r := range records {
		crashpoint.DieOf("node-drainer", r.Event.Message)
	}
	sc.records, sc.view.Records = records, records
	return nil
}

// confirm reads the Node, and the pods if asked to, from the API server. The
// Node comes first: what was bound to it before it was cordoned is then listed.
// A list of pods takes the API server a tenth of a second, in which
// fault-quarantine mostly stamps that it has marked the Node; the records are
// read again after it, so that the drain's stamp is not lost to that one.
func (d *Drain) confirm(ctx context.Context, name string, sc scene, pods bool) (scene, error) {
	node, err := d.world.LiveNode(ctx, name)
	if err != nil {
		return sc, err
	}
	sc.node, sc.view.Node = node, plan.NodeOf(node)
	if pods {
		if sc.view.Pods, err = d.world.LivePods(ctx, name); err != nil {
			return sc, err
		}
		if err := d.list(ctx, name, &sc); err != nil {
			return sc, err
		}
	}
	return deaf(sc), nil
}

// kept selects the drained faults that are not repaired.
func kept() record.Selector {
	return record.Selector{Open: record.Yes(), Evictions: []record.Eviction{record.EvictionSucceeded, record.AlreadyDrained}, Remediated: "null"}
}

// deaf plants a fault for the crash tests, which must find it: a drain that
// does not hear that its node recovered.
func deaf(sc scene) scene {
	if !crashpoint.Sabotaged("node-drainer/skip-cancel") || sc.node == nil {
		return sc
	}
	sc.view.Records = slices.Clone(sc.view.Records)
	for i := range sc.view.Records {
		r := &sc.view.Records[i]
		if r.Status.UserPodsEvictionStatus.Status != record.EvictionInProgress {
			continue
		}
		r.Status.NodeQuarantined = record.AlreadyQuarantined
		r.Status.Faults = slices.Clone(r.Status.Faults)
		for j := range r.Status.Faults {
			r.Status.Faults[j].ClearedTimestamp = nil
		}
		sc.view.Node.Session, sc.view.Node.Unschedulable, sc.view.Node.Released = r.Status.Session, true, false
		sc.view.Node.State = nodemark.Draining // the API server lets nobody write it after a release
	}
	return sc
}
