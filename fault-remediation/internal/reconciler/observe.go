package reconciler

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/eviction"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// observe reads records, Node, object and pods from where they live, no cache. What
// the decision does not look at is not read.
func (r *Reconciler) observe(ctx context.Context, node string, reserved *reservation) (*facts, error) {
	f := &facts{}
	f.view.Node.Name = node
	if err := r.readRecords(ctx, f); err != nil {
		return nil, err
	}
	wanted, err := r.readNode(ctx, f, reserved)
	if err != nil || !wanted {
		return f, err
	}
	if f.view.Boots, err = r.boots(ctx, f.view); err != nil {
		return nil, err
	}
	r.readObject(ctx, f, reserved)
	return f, r.readDetails(ctx, f)
}

func (r *Reconciler) readRecords(ctx context.Context, f *facts) (err error) {
	name := f.view.Node.Name
	if f.view.Records, err = r.Records.List(ctx, store.Query{Selector: RepairsOf(name)}); err != nil {
		return fmt.Errorf("listing the records of node %s: %w", name, err)
	}
	for _, x := range f.view.Records {
		crashpoint.DieOf(x.Event.Message)
	}
	return nil
}

// readNode reads the Node, unless it is known well enough. wanted reports whether the
// decision looks at it.
func (r *Reconciler) readNode(ctx context.Context, f *facts, reserved *reservation) (wanted bool, err error) {
	name := f.view.Node.Name
	cached := r.cached(name)
	needs := decision.Needs(f.view, marksOf(cached), r.Clock.Now())
	if !needs.Node {
		return false, nil
	}
	if f.node = reserved.nodeOf(f.view.Records); f.node == nil && needs.Cached {
		f.node = cached
	}
	if f.node == nil {
		if f.node, err = kube.ReadNode(ctx, r.Cluster.Clientset, name); err != nil && !errors.Is(err, kube.ErrNodeDeleted) {
			return true, err
		}
	}
	f.view.Node.Presence = decision.Absent
	if f.node != nil {
		f.view.Node = nodeFacts(f.node)
	}
	return true, nil
}

// readObject reads the object of the current attempt; one whose name was reserved a moment
// ago is absent.
func (r *Reconciler) readObject(ctx context.Context, f *facts, reserved *reservation) {
	cur, ok := decision.Current(f.view.Records)
	if !ok {
		return
	}
	f.view.Object = decision.Object{Presence: decision.Absent}
	if !reserved.names(cur.Attempt) {
		f.view.Object = r.object(ctx, cur.Attempt)
	}
}

// readDetails reads what only some decisions depend on. The pods are not read that node-drainer
// has just listed: the API server answers such a list when its cache has caught up, up to a
// tenth of a second later.
func (r *Reconciler) readDetails(ctx context.Context, f *facts) (err error) {
	name := f.view.Node.Name
	needs := decision.Needs(f.view, nil, r.Clock.Now())
	if !needs.Kubelet {
		r.kubelets.Forget(name)
	} else if f.view.Node.Kubelet, err = r.kubelets.Poll(ctx, r.Cluster.Clientset, f.node, r.Clock.Now()); err != nil {
		return err
	}
	if needs.Pods {
		f.view.PodsBack, err = r.podsBack(ctx, name, r.Eviction.Demands(f.view.Records, f.view.Node.Session))
	}
	return err
}

// cached is the Node that the cache has; nil when it has none.
func (r *Reconciler) cached(name string) *corev1.Node {
	if r.Cached == nil {
		return nil
	}
	return r.Cached(name)
}

func marksOf(node *corev1.Node) *nodemark.Marks {
	if node == nil {
		return nil
	}
	return new(nodemark.Read(node))
}

func nodeFacts(node *corev1.Node) decision.Node {
	m := nodemark.Read(node)
	return decision.Node{
		Name: node.Name, Presence: decision.Present, Identity: kube.NodeIdentity(node),
		Unknown: len(m.Unknown) > 0, Session: m.Session, Claim: m.Claim, RepeatOffender: decision.RepeatOffenderMark(m.RepeatOffender),
		Marked: !m.Schedulable, Ready: kube.NodeReady(node), ReadySince: kube.NodeReadySince(node),
	}
}

// podsBack names the pods that have to be gone, as the open faults ask, and are
// on the node.
func (r *Reconciler) podsBack(ctx context.Context, node string, demands []eviction.Demand) ([]string, error) {
	list, err := r.Cluster.Clientset.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	var names []string
	for _, due := range eviction.Owing(pods, demands, r.Eviction, r.Clock.Now()) {
		names = append(names, due.Pod.Namespace+"/"+due.Pod.Name)
	}
	return names, nil
}

// boots gathers what proves that boots are past: the records at hand and, of
// each publisher with an open fault, its newest record.
func (r *Reconciler) boots(ctx context.Context, v decision.View) (fault.Boots, error) {
	known := slices.Clone(v.Records)
	type publisher struct{ agent, epoch string }
	open := map[publisher][]record.Record{}
	for _, x := range v.Records {
		if x.SeqEpoch != "" && x.Status.FaultRemediated == nil && record.Open(x) {
			p := publisher{x.Event.Agent, x.SeqEpoch}
			open[p] = append(open[p], x)
		}
	}
	for p, faults := range open {
		newest, err := r.newest(ctx, NewestOf(v.Node.Name, p.agent, p.epoch), faults)
		if err != nil {
			return fault.Boots{}, fmt.Errorf("reading the newest record of %s on node %s: %w", p.agent, v.Node.Name, err)
		}
		known = append(known, newest...)
	}
	return fault.BootsOf(known, v.Node.Session, v.Node.Identity.BootID), nil
}

// newest reads the record of a publisher with the highest number, and the one that came
// last if the first says nothing about one of its faults: then the disk of its counter was
// restored from an image, and the counter is behind the numbers that it gave before.
func (r *Reconciler) newest(ctx context.Context, of record.Selector, faults []record.Record) ([]record.Record, error) {
	highest, err := r.Records.List(ctx, store.Query{Selector: of, Order: store.BySeqDescending, Limit: 1})
	if err != nil || len(highest) == 0 {
		return nil, err
	}
	if !slices.ContainsFunc(faults, func(x record.Record) bool { return x.ID != highest[0].ID && !fault.Follows(x, highest[0]) }) {
		return highest, nil
	}
	last, err := r.Records.List(ctx, store.Query{Selector: of, Order: store.ByAppendDescending, Limit: 1})
	return append(highest, last...), err
}

// RepairsOf selects what a decision looks at: a node's open records and all with a
// repair trace.
func RepairsOf(node string) record.Selector {
	return record.Selector{
		Name: "Repairs of a node", Node: node,
		Any: []record.Selector{{Open: record.Yes()}, {Repaired: record.Yes()}},
	}
}

// Unsettled selects the repaired records that something may follow, of all nodes.
func Unsettled() record.Selector {
	return record.Selector{
		Name: "Unsettled repairs", Repaired: record.Yes(),
		Any: []record.Selector{{Remediated: "null"}, {Remediated: "false"}},
	}
}

// NewestOf selects what a publisher's outbox reported about a node, for the boot that the
// newest of it names. What was only observed (PERSIST_ONLY) proves no boot to be past: it
// would settle a fault, and a label would show that.
func NewestOf(node, agent, epoch string) record.Selector {
	return record.Selector{Name: "Newest of a publisher", Node: node, Agent: agent, SeqEpoch: epoch, Strategy: record.Process}
}
