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
// the decision does not look at is not read, and the pods are not that node-drainer has
// just listed: the API server answers such a list when its cache has caught up, up to a
// tenth of a second later.
func (d *Reconciler) observe(ctx context.Context, name string, reserved *reservation) (*facts, error) {
	records, err := d.Records.List(ctx, store.Query{Selector: RepairsOf(name)})
	if err != nil {
		return nil, fmt.Errorf("listing the records of node %s: %w", name, err)
	}
	for _, r := range records {
		crashpoint.DieOf(r.Event.Message)
	}
	f := &facts{view: decision.View{Records: records, Node: decision.Node{Name: name}}}
	if !decision.NeedsNode(records) {
		return f, nil
	}
	if f.node, err = d.liveNode(ctx, name, reserved.knownNode(records), records); err != nil {
		return nil, err
	}
	f.view.Node.Presence = decision.Absent
	if f.node != nil {
		f.view.Node = nodeFacts(f.node)
	}
	if f.view.Boots, err = d.boots(ctx, f.view); err != nil {
		return nil, err
	}
	if cur, ok := decision.Current(records); ok {
		f.view.Object = decision.Object{Presence: decision.Absent}
		if !reserved.names(cur.Attempt) {
			f.view.Object = d.object(ctx, cur.Attempt)
		}
	}
	if err := d.watchKubelet(ctx, f); err != nil {
		return nil, err
	}
	if decision.MayCreate(f.view) && !decision.DrainedJustNow(f.view, d.Clock.Now()) {
		f.view.PodsBack, err = d.podsBack(ctx, name, d.Eviction.Demands(records, f.view.Node.Session))
	}
	return f, err
}

// watchKubelet looks at the Node's kubelet while a decision depends on whether it is alive.
func (d *Reconciler) watchKubelet(ctx context.Context, f *facts) (err error) {
	if !decision.AsksKubelet(f.view) {
		d.kubelets.Forget(f.view.Node.Name)
		return nil
	}
	f.view.Node.Kubelet, err = d.kubelets.Look(ctx, d.Cluster.Clientset, f.node, d.Clock.Now())
	return err
}

// liveNode reads the Node, if it is not known; nil is certain absence. For the first repair
// of a session the cache's is enough: what would be written first is its mark.
func (d *Reconciler) liveNode(ctx context.Context, name string, known *corev1.Node, records []record.Record) (*corev1.Node, error) {
	if known != nil {
		return known, nil
	}
	if d.Cached != nil {
		if node := d.Cached(name); decision.FirstOfSession(records, nodemark.Read(node)) {
			return node, nil
		}
	}
	node, err := kube.ReadNode(ctx, d.Cluster.Clientset, name)
	if err != nil && !errors.Is(err, kube.ErrGone) {
		return nil, err
	}
	return node, nil
}

func nodeFacts(node *corev1.Node) decision.Node {
	m := nodemark.Read(node)
	return decision.Node{
		Name: node.Name, Presence: decision.Present, Identity: kube.NodeIdentity(node),
		Unknown: len(m.Unknown) > 0, Session: m.Session, Claim: m.Claim, Lemon: decision.LemonMark(m.Lemon),
		Marked: !m.Schedulable, Ready: kube.NodeReady(node), ReadySince: kube.NodeReadySince(node),
	}
}

// podsBack names the pods that have to be gone, as the open faults ask, and are
// on the node.
func (d *Reconciler) podsBack(ctx context.Context, node string, demands []eviction.Demand) ([]string, error) {
	list, err := d.Cluster.Clientset.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
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
	for _, due := range eviction.Owing(pods, demands, d.Eviction, d.Clock.Now()) {
		names = append(names, due.Pod.Namespace+"/"+due.Pod.Name)
	}
	return names, nil
}

// boots gathers what proves that boots are past: the records at hand and, of
// each publisher with an open fault, its newest record.
func (d *Reconciler) boots(ctx context.Context, v decision.View) (fault.Boots, error) {
	known := slices.Clone(v.Records)
	type publisher struct{ agent, epoch string }
	open := map[publisher][]record.Record{}
	for _, r := range v.Records {
		if r.SeqEpoch != "" && r.Status.FaultRemediated == nil && record.Open(r) {
			p := publisher{r.Event.Agent, r.SeqEpoch}
			open[p] = append(open[p], r)
		}
	}
	for p, faults := range open {
		newest, err := d.newest(ctx, NewestOf(v.Node.Name, p.agent, p.epoch), faults)
		if err != nil {
			return fault.Boots{}, fmt.Errorf("reading the newest record of %s on node %s: %w", p.agent, v.Node.Name, err)
		}
		known = append(known, newest...)
	}
	return fault.BootsOf(known, v.Node.Session, v.Node.Identity.BootID), nil
}

// newest reads the record of a publisher with the highest number, and the one
// that came last if that says nothing of one of its faults: its counter's disk
// was restored from an image, and counts behind what it gave before.
func (d *Reconciler) newest(ctx context.Context, of record.Selector, faults []record.Record) ([]record.Record, error) {
	highest, err := d.Records.List(ctx, store.Query{Selector: of, Order: store.BySeqDescending, Limit: 1})
	if err != nil || len(highest) == 0 {
		return nil, err
	}
	if !slices.ContainsFunc(faults, func(r record.Record) bool { return r.ID != highest[0].ID && !fault.Follows(r, highest[0]) }) {
		return highest, nil
	}
	last, err := d.Records.List(ctx, store.Query{Selector: of, Order: store.ByAppendDescending, Limit: 1})
	return append(highest, last...), err
}
