package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodeclient"
	"github.com/nvidia/nvsentinel/platform-connectors/conditions"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/sink"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// This part of the package shows the faults that cluster-wide publishers reported as
// conditions of their nodes. It is the work of the leader among the connectors of role
// cluster, from the store's records alone: what a node's conditions must show is computed
// whole, whatever enqueued it.

// ConditionRecords is the part of the store that is read.
type ConditionRecords interface {
	List(ctx context.Context, q store.Query) ([]record.Record, error)
}

// Conditions writes the conditions of nodes from the records of cluster-wide
// agents.
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
	// reportedUpTo is the place in the store up to which a node's faults were reported as
	// Kubernetes Events; a node of which nothing is known has none.
	reportedUpTo map[string]int64
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

// Handle updates the conditions of one node, and reports its faults that are not
// fatal as Kubernetes Events.
func (r *Conditions) Handle(ctx context.Context, name string) error {
	r.remember(name, nil) // from now on its creation enqueues it
	node, err := kube.ReadNode(ctx, r.Client, name)
	if errors.Is(err, kube.ErrNodeDeleted) {
		return nil
	}
	if err != nil {
		return err
	}
	var set conditions.Set
	machine, pending := kube.NodeIdentity(node), r.pendingEvents(name)
	err = r.each(ctx, name, func(rec record.Record) {
		crashpoint.DieOf(rec.Event.Message)
		set.FoldStored(rec, machine)
		pending.take(rec, machine)
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
		r.Log.Info("node conditions updated from cluster-wide faults", "node", name, "changed", len(changes))
	}
	return r.writeEvents(ctx, node, pending)
}

// Relevant reports whether a change of a Node enqueues it: there are records of it, and
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

// maxEventAge is how old a fault may be that is reported as a Kubernetes Event: the API server
// keeps Events for an hour, unless it is configured otherwise.
const maxEventAge = time.Hour

// pendingEvents are the faults of a node that are not fatal and were not reported yet, by the
// content of their Events, in the order in which they were first seen.
type pendingEvents struct {
	after int64     // the place in the store behind which they begin
	since time.Time // what was stored before is too old

	upTo  int64
	order []conditions.Notice
	seen  map[conditions.Notice]*nodeclient.FaultEvent
}

// pendingEvents begins where a node's faults were reported last. After a start nothing is known
// of that: what is young enough is reported, and the Events show what was reported before.
func (r *Conditions) pendingEvents(node string) *pendingEvents {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.reportedUpTo[node]
	return &pendingEvents{after: at, upTo: at, since: r.Clock.Now().Add(-maxEventAge), seen: map[conditions.Notice]*nodeclient.FaultEvent{}}
}

// take notes a record of the node, if it is news about this machine.
func (p *pendingEvents) take(r record.Record, machine record.NodeIdentity) {
	if r.Append <= p.after {
		return
	}
	p.upTo = max(p.upTo, r.Append)
	if !r.Acts() || !r.IsFault() || r.Event.IsFatal || r.CreatedAt.Before(p.since) || fault.Compare(fault.Of(r), machine) == fault.AnotherMachine {
		return
	}
	notice := conditions.NoticeOf(r.Event)
	seen, known := p.seen[notice]
	if !known {
		seen = &nodeclient.FaultEvent{Component: notice.Agent, Reason: notice.Reason, Message: notice.Message}
		p.seen[notice], p.order = seen, append(p.order, notice)
	}
	repeats, _ := r.Event.Repeats()
	seen.Times, seen.Last = seen.Times+int32(min(max(repeats, 1), 1<<20)), r.CreatedAt
}

// writeEvents writes the news as Events about the Node: of more than MaxNotices different
// ones the newest. What was written before a failure is not counted again.
func (r *Conditions) writeEvents(ctx context.Context, node *corev1.Node, n *pendingEvents) error {
	if over := len(n.order) - conditions.MaxNotices; over > 0 {
		r.Log.Warn("Kubernetes Events limited: the oldest faults of the node have none", "node", node.Name, "left_out", over)
		n.order = slices.Delete(n.order, 0, over)
	}
	for _, notice := range n.order {
		err := nodeclient.CountFault(ctx, r.Client.CoreV1().Events(metav1.NamespaceDefault), node, *n.seen[notice])
		if r.Metrics.EventWritten(err); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reportedUpTo == nil {
		r.reportedUpTo = map[string]int64{}
	}
	r.reportedUpTo[node.Name] = n.upTo
	return nil
}
