// Package overview shows the faults that cluster-wide publishers reported as
// conditions of their nodes. It is the work of the leader among the connectors
// of role cluster, from the store's records alone: what a node's conditions must
// say is computed whole, whatever rang.
package overview

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/platform-connectors/conditions"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/sink"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Records is the part of the store that is read.
type Records interface {
	List(ctx context.Context, q store.Query) ([]record.Record, error)
}

// Overview makes the conditions of nodes what the records of cluster-wide
// agents say.
type Overview struct {
	// Agents are the cluster-wide ones.
	Agents  []string
	Records Records
	Client  kubernetes.Interface
	Clock   clock.PassiveClock
	Log     *slog.Logger
	Metrics *sink.Metrics

	mu sync.Mutex
	// shown is what the conditions of each node must be of which there are
	// records; nil when that is not known.
	shown map[string][]corev1.NodeCondition
	// told is the place in the store up to which a node's faults were told as
	// Kubernetes Events; a node of which nothing is known has none.
	told map[string]int64
}

// Selector is what rings: every change of the agents' records.
func (o *Overview) Selector() record.Selector { return o.of("") }

// of selects the records of one node, or of all.
func (o *Overview) of(node string) record.Selector {
	s := record.Selector{Name: "ClusterWide", Node: node, Strategy: record.Process}
	for _, agent := range o.Agents {
		s.Any = append(s.Any, record.Selector{Agent: agent})
	}
	return s
}

// Backlog rings every node of which there is a record.
func (o *Overview) Backlog(ctx context.Context, ring func(string)) error {
	return o.each(ctx, "", func(r record.Record) { ring(r.Event.NodeName) })
}

// Handle makes the conditions of one node true, and tells of its faults that are
// not fatal as Kubernetes Events.
func (o *Overview) Handle(ctx context.Context, name string) error {
	o.remember(name, nil) // from now on its creation rings
	node, err := kube.ReadNode(ctx, o.Client, name)
	if errors.Is(err, kube.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	var set conditions.Set
	machine, unsaid := kube.NodeIdentity(node), o.news(name)
	err = o.each(ctx, name, func(r record.Record) {
		crashpoint.DieOf("platform-connectors-cluster", r.Event.Message)
		set.FoldStored(r, machine)
		unsaid.take(r, machine)
	})
	if err != nil {
		return err
	}
	desired := set.Desired()
	o.remember(name, desired)
	changes := conditions.Changes(node.Status.Conditions, desired, o.Clock.Now())
	if err := sink.Patch(ctx, o.Client, name, changes); err != nil {
		o.Metrics.Updated(err)
		return err
	}
	if len(changes) > 0 {
		o.Metrics.Updated(nil)
		o.Log.Info("the conditions of a node follow its cluster-wide faults", "node", name, "changed", len(changes))
	}
	return o.tell(ctx, node, unsaid)
}

// Relevant says whether a change of a Node rings: there are records of it, and
// it is new or its conditions are no longer what they were made to be.
func (o *Overview) Relevant(before, after *corev1.Node) bool {
	if after == nil {
		return false
	}
	o.mu.Lock()
	desired, known := o.shown[after.Name]
	o.mu.Unlock()
	return known && (before == nil || len(conditions.Changes(after.Status.Conditions, desired, o.Clock.Now())) > 0)
}

func (o *Overview) remember(node string, desired []corev1.NodeCondition) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.shown == nil {
		o.shown = map[string][]corev1.NodeCondition{}
	}
	o.shown[node] = desired
}

// each visits the agents' records of a node, or of all, in append order.
func (o *Overview) each(ctx context.Context, node string, visit func(record.Record)) error {
	err := store.Each(ctx, o.Records, store.Query{Selector: o.of(node)}, func(r record.Record) error { visit(r); return nil })
	if err != nil {
		return fmt.Errorf("reading the records of cluster-wide agents: %w", err)
	}
	return nil
}
