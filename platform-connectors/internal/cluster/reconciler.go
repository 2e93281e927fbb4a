package cluster

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

// This part of the package shows the faults that cluster-wide publishers reported as
// conditions of their nodes. It is the work of the leader among the connectors
// of role cluster, from the store's records alone: what a node's conditions must
// say is computed whole, whatever enqueued it.

// ConditionRecords is the part of the store that is read.
type ConditionRecords interface {
	List(ctx context.Context, q store.Query) ([]record.Record, error)
}

// Conditions makes the conditions of nodes what the records of cluster-wide
// agents say.
type Conditions struct {
	// Agents are the cluster-wide ones.
	Agents  []string
	Records ConditionRecords
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

// Selector is what enqueues: every change of the agents' records.
func (r *Conditions) Selector() record.Selector { return r.of("") }

// of selects the records of one node, or of all.
func (r *Conditions) of(node string) record.Selector {
	s := record.Selector{Name: "ClusterWide", Node: node, Strategy: record.Process}
	for _, agent := range r.Agents {
		s.Any = append(s.Any, record.Selector{Agent: agent})
	}
	return s
}

// Backlog enqueues every node of which there is a record.
func (r *Conditions) Backlog(ctx context.Context, enqueue func(string)) error {
	return r.each(ctx, "", func(rec record.Record) { enqueue(rec.Event.NodeName) })
}

// Handle makes the conditions of one node true, and tells of its faults that are
// not fatal as Kubernetes Events.
func (r *Conditions) Handle(ctx context.Context, name string) error {
	r.remember(name, nil) // from now on its creation enqueues it
	node, err := kube.ReadNode(ctx, r.Client, name)
	if errors.Is(err, kube.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	var set conditions.Set
	machine, unsaid := kube.NodeIdentity(node), r.news(name)
	err = r.each(ctx, name, func(rec record.Record) {
		crashpoint.DieOf(rec.Event.Message)
		set.FoldStored(rec, machine)
		unsaid.take(rec, machine)
	})
	if err != nil {
		return err
	}
	desired := set.Desired()
	r.remember(name, desired)
	changes := conditions.Changes(node.Status.Conditions, desired, r.Clock.Now())
	if err := sink.Patch(ctx, r.Client.CoreV1().Nodes(), name, changes); err != nil {
		r.Metrics.Updated(err)
		return err
	}
	if len(changes) > 0 {
		r.Metrics.Updated(nil)
		r.Log.Info("the conditions of a node follow its cluster-wide faults", "node", name, "changed", len(changes))
	}
	return r.tell(ctx, node, unsaid)
}

// Relevant says whether a change of a Node enqueues it: there are records of it, and
// it is new or its conditions are no longer what they were made to be.
func (r *Conditions) Relevant(before, after *corev1.Node) bool {
	if after == nil {
		return false
	}
	r.mu.Lock()
	desired, known := r.shown[after.Name]
	r.mu.Unlock()
	return known && (before == nil || len(conditions.Changes(after.Status.Conditions, desired, r.Clock.Now())) > 0)
}

func (r *Conditions) remember(node string, desired []corev1.NodeCondition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shown == nil {
		r.shown = map[string][]corev1.NodeCondition{}
	}
	r.shown[node] = desired
}

// each visits the agents' records of a node, or of all, in append order.
func (r *Conditions) each(ctx context.Context, node string, visit func(record.Record)) error {
	err := store.Each(ctx, r.Records, store.Query{Selector: r.of(node)}, func(rec record.Record) error { visit(rec); return nil })
	if err != nil {
		return fmt.Errorf("reading the records of cluster-wide agents: %w", err)
	}
	return nil
}
