package repair

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/action"
	"github.com/nvidia/nvsentinel/fault-remediation/plan"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/eviction"
	"github.com/nvidia/nvsentinel/internal/healthrule"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// facts are the view of a moment and the Node it was read from; the Node is
// nil when it is certainly absent.
type facts struct {
	view plan.View
	node *corev1.Node
	// reserved and created are what the step taken on these facts has shown: a
	// new name was stamped, the object was created.
	reserved bool
	created  *plan.Object
	// mine: these facts are those of an object that was just created. stamped: the
	// step's writes are done. news: something changed while this desk wrote it.
	mine, stamped, news bool
	// wait is what follows from the records alone; the rest is not read then.
	wait *plan.Step
}

// observe reads records, Node, object and pods from where they live, no cache.
// What the last step has shown is not read again.
func (d *Desk) observe(ctx context.Context, name string, last *facts) (*facts, error) {
	if last != nil && last.created != nil {
		view := last.view
		view.Object = *last.created
		return &facts{view: view, node: last.node, mine: true, news: last.news}, nil
	}
	records, err := d.Records.List(ctx, store.Query{Selector: RepairsOf(name)})
	if err != nil {
		return nil, fmt.Errorf("listing the records of node %s: %w", name, err)
	}
	for _, r := range records {
		crashpoint.DieOf("fault-remediation", r.Event.Message)
	}
	f := &facts{view: plan.View{Records: records, Node: plan.Node{Name: name, Presence: plan.Absent}}}
	if f.wait = plan.Undrained(records); f.wait != nil || len(records) == 0 {
		return f, nil
	}
	if f.node, err = d.liveNode(ctx, name, last, records); err != nil {
		return nil, err
	}
	if f.node != nil {
		f.view.Node = nodeFacts(f.node)
	}
	if f.view.Boots, err = d.boots(ctx, f.view); err != nil {
		return nil, err
	}
	if f.node != nil && plan.MayCreate(records) {
		if f.view.PodsBack, err = d.podsBack(ctx, name, d.Eviction.Demands(records, f.view.Node.Session)); err != nil {
			return nil, err
		}
	}
	if cur, ok := plan.Current(records); ok {
		f.view.Object = d.liveObject(ctx, cur, last)
	}
	return f, nil
}

// liveNode reads the Node; nil is certain absence. The Node under which a name
// was just reserved need not be read again if the mark that precedes the
// creation changes it: that is written under its resourceVersion. A record that
// is new since may have been accepted under a boot that this Node does not show.
func (d *Desk) liveNode(ctx context.Context, name string, last *facts, records []record.Record) (*corev1.Node, error) {
	if last != nil && last.reserved && last.node != nil && last.has(records) && nodemark.Read(last.node).State != nodemark.Remediating {
		return last.node, nil
	}
	node, err := kube.ReadNode(ctx, d.Cluster.Clientset, name)
	if err != nil && !errors.Is(err, kube.ErrGone) {
		return nil, err
	}
	return node, nil
}

// has says whether the facts hold all of these records, at whatever revision.
func (f *facts) has(records []record.Record) bool {
	known := map[string]bool{}
	for _, r := range f.view.Records {
		known[r.ID] = true
	}
	return !slices.ContainsFunc(records, func(r record.Record) bool { return !known[r.ID] })
}

// liveObject reads the object of the current attempt. One whose name was just
// reserved is taken as absent: its creation by name is the test of that.
func (d *Desk) liveObject(ctx context.Context, cur plan.Ref, last *facts) plan.Object {
	if last != nil && last.reserved && cur.Attempt.UID == "" && !last.knew(cur) {
		return plan.Object{Presence: plan.Absent}
	}
	return d.object(ctx, cur.Attempt)
}

// knew says whether an attempt is in the facts.
func (f *facts) knew(cur plan.Ref) bool {
	return slices.ContainsFunc(f.view.Records, func(r record.Record) bool {
		rem := r.Status.Remediation
		return r.ID == cur.Record.ID && rem != nil && cur.Index < len(rem.Attempts)
	})
}

func nodeFacts(node *corev1.Node) plan.Node {
	m := nodemark.Read(node)
	return plan.Node{
		Name: node.Name, Presence: plan.Present, Identity: kube.NodeIdentity(node),
		Unknown: len(m.Unknown) > 0, Session: m.Session, Claim: m.Claim, Lemon: plan.LemonMark(m.Lemon),
		Marked: !m.Schedulable, Ready: kube.NodeReady(node), ReadySince: kube.NodeReadySince(node),
	}
}

// podsBack names the pods that have to be gone, as the open faults ask, and are
// on the node.
func (d *Desk) podsBack(ctx context.Context, node string, demands []eviction.Demand) ([]string, error) {
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
func (d *Desk) boots(ctx context.Context, v plan.View) (fault.Boots, error) {
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
func (d *Desk) newest(ctx context.Context, of record.Selector, faults []record.Record) ([]record.Record, error) {
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

// object reads the object of an attempt. Only a true NotFound is absence; what
// can not be read is Unread, with the reason.
func (d *Desk) object(ctx context.Context, a record.Attempt) plan.Object {
	repair, ok := d.Repairs.Of(a.Action)
	if !ok || repair.GVK.Kind != a.Kind || repair.Namespace != a.Namespace {
		return unread(plan.Unconfigured, fmt.Errorf("%s is not configured as %s any more", a.Action, a.Kind))
	}
	obj, err := d.read(ctx, repair, a.Name)
	switch {
	case err == nil:
		return objectFacts(obj, repair)
	case absent(err):
		return plan.Object{Presence: plan.Absent}
	case kindMissing(err):
		return unread(plan.KindMissing, fmt.Errorf("the API server does not serve %s", repair.GVR()))
	}
	d.Metrics.failed("read")
	return unread(plan.ReadError, err)
}

func unread(why plan.Reason, err error) plan.Object {
	return plan.Object{Presence: plan.Unread, Unread: why, Health: healthrule.Evaluate(nil, nil, err)}
}

// objectFacts reads what the plan needs from an object. Conditions and status
// fields are those of the janitor's kinds; other kinds lack them.
func objectFacts(obj *unstructured.Unstructured, repair action.Action) plan.Object {
	marks := obj.GetAnnotations()
	ordinal, _ := strconv.Atoi(marks[action.OrdinalAnnotation])
	signal, ok := healthrule.ConditionOf(obj, "SignalSent")
	refused := ok && signal.Status == "False"
	notNeeded := ok && signal.Reason == "NotNeeded"
	prior, _, _ := unstructured.NestedString(obj.Object, "status", "preRebootBootID")
	observed, _, _ := unstructured.NestedString(obj.Object, "status", "observedBootID")
	o := plan.Object{
		Presence: plan.Present, UID: string(obj.GetUID()), CreatedAt: obj.GetCreationTimestamp().Time,
		Session: marks[action.SessionAnnotation], Group: marks[action.GroupAnnotation], Ordinal: ordinal,
		Health: healthrule.Evaluate(obj, &repair.Rule, nil),
		Unsent: refused || notNeeded, SessionOver: refused && signal.Reason == "SessionOver",
		PriorBoot: prior, ObservedBoot: observed,
	}
	if repair.Chain != "" {
		runFacts(&o, obj)
	}
	return o
}
