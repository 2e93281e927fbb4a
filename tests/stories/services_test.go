package stories

import (
	"encoding/json"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	quarantine "github.com/nvidia/nvsentinel/fault-quarantine/decision"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/fault-quarantine/rulematch"
	repair "github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/eviction"
	"github.com/nvidia/nvsentinel/internal/healthrule"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/kubelet"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	janitor "github.com/nvidia/nvsentinel/janitor/repair"
	drain "github.com/nvidia/nvsentinel/node-drainer/decision"
)

// quarantine is fault-quarantine: verdicts first, then the Node's marks.
func (w *world) quarantine() {
	open := record.OpenOfNode(nodeName)
	view := quarantine.View{Name: nodeName, Pending: w.list(record.BacklogOfNode(nodeName)), Open: w.list(open), Past: w.list(record.Selector{
		Strategy: record.Process, Open: record.No(), Verdicts: []record.Reason{record.Cleared, record.NoOpenFault, record.Matched},
		Any: []record.Selector{{Healthy: record.Yes()}, {Repaired: record.Yes()}},
	})}
	if w.node != nil {
		view.Node = &quarantine.Node{
			Identity: kube.NodeIdentity(w.node), Created: w.node.CreationTimestamp.Time, OptedOut: nodemark.OptedOut(w.node.Labels),
			Session: nodemark.Session(w.node), Released: nodemark.Read(w.node).Released != nodemark.NotReleased, LetGo: nodemark.Read(w.node).LetGo,
			Active: marks.Active(w.node), Unconfirmed: nodemark.Read(w.node).Unknown, Unschedulable: w.node.Spec.Unschedulable,
			Checks: w.checks,
		}
		view.Named = w.named(view.Node)
	}
	match := func(e record.Event) rulematch.Ruling { return w.rules.Decide(e, map[string]any{}) }
	j := quarantine.Evaluate(view, quarantine.Policy{Match: match, DryRun: w.dryRun, HoldReason: w.holdReason, Retention: 24 * hour}, w.now)
	if len(j.Changed) > 0 {
		w.write()
	}
	for _, r := range j.Changed {
		w.update(record.FaultQuarantine, r.ID, r.Revision, r.Status, r.ExpireAt)
		w.log("fault-quarantine", "%s: %s %s%s", r.ID, r.Reason(), r.Status.NodeQuarantined, cleared(r))
	}
	if w.node == nil {
		return
	}
	if j.Leave {
		return
	}
	want := marks.Of(w.list(open))
	if len(j.Unknown) > 0 {
		want = want.Keep(w.node, j.Unknown)
	}
	w.mark(want)
	w.finish()
}

// named are the settled records that the Node names.
func (w *world) named(n *quarantine.Node) (out []record.Record) {
	for _, r := range w.list(record.Selector{}) {
		settled := r.Evaluated() && r.Reason() != record.Held && !record.Open(r)
		if n.Session != "" && settled && (slices.ContainsFunc(n.Active, func(a record.Record) bool { return a.ID == r.ID }) || r.Status.Session == n.Session) {
			out = append(out, r)
		}
	}
	return out
}

// finish records that the Node has the marks of its open records.
func (w *world) finish() {
	for _, r := range w.list(record.OpenOfNode(nodeName)) {
		if r.Status.QuarantineFinishTimestamp == nil {
			w.write()
			at := w.now
			r.Status.QuarantineFinishTimestamp = &at
			w.update(record.FaultQuarantine, r.ID, r.Revision, r.Status, r.ExpireAt)
		}
	}
}

func (w *world) mark(want marks.Desired) {
	if want.Session == "" && !nodemark.HasMarks(w.node) {
		return
	}
	after := w.node.DeepCopy()
	marks.Mutator{LabelPrefix: nodemark.DefaultLabelPrefix, AnyoneReleases: w.anyone}.Apply(after, want, w.now)
	if same(w.node, after) {
		return
	}
	w.write()
	before, restored := nodemark.Session(w.node), nodemark.Read(w.node).Restored.Count
	w.node = after
	if r := nodemark.Read(after).Restored; r.Count > restored {
		w.log("fault-quarantine", "node: %s by %q is no release, restored (%d)", r.Mark, r.By, r.Count)
	}
	if session := nodemark.Session(after); session != before {
		w.log("fault-quarantine", "node: session %s -> %s, unschedulable %t", orNone(before), orNone(session), after.Spec.Unschedulable)
	}
}

// drain is node-drainer: label, pods, status.
func (w *world) drain() {
	for range 20 {
		view := drain.View{Node: drain.NodeOf(w.node), Pods: w.pods, Attempts: map[types.UID]drain.Attempt{}}
		owed := record.Selector{
			Quarantined: []record.Quarantine{record.Quarantined, record.AlreadyQuarantined, record.QuarantineCanceled},
			Evictions:   []record.Eviction{record.EvictionUnset, record.EvictionInProgress},
		}
		view.Records = w.list(record.Selector{Strategy: record.Process, Healthy: record.No(), Any: []record.Selector{
			owed, {Open: record.Yes()}, {Session: view.Node.Session, Evictions: []record.Eviction{record.EvictionSucceeded}},
		}})
		s := drain.Next(view, drain.DefaultPolicy(w.eviction), w.now)
		if s.EndsPass() && len(s.Updates) == 0 && s.Label == "" {
			return
		}
		if s.Label != "" && w.node.Labels[nodemark.StateLabel] != string(s.Label) {
			w.write()
			w.label(s.Label)
		}
		if len(s.Pods) > 0 {
			w.write()
			w.evict(s.Pods)
		}
		w.updateDrain(s)
		if s.EndsPass() {
			return
		}
	}
	w.t.Fatalf("the drain does not come to rest:\n%s", w.out.String())
}

func (w *world) updateDrain(s drain.Step) {
	fresh := false
	for _, update := range s.Updates {
		fresh = fresh || w.records[update.ID].Status.UserPodsEvictionStatus != update.Status
	}
	if !fresh {
		return
	}
	w.write()
	for _, update := range s.Updates {
		r := w.records[update.ID]
		w.update(record.NodeDrainer, r.ID, r.Revision, update.On(r.Status, w.now), r.ExpireAt)
	}
	w.log("node-drainer", "%s: %s, %d left", s.Kind, s.Why, s.Left)
}

func (w *world) evict(pods []*corev1.Pod) {
	for _, gone := range pods {
		for i, p := range w.pods {
			if p.UID == gone.UID {
				w.pods = append(w.pods[:i:i], w.pods[i+1:]...)
				break
			}
		}
	}
}

func (w *world) label(state nodemark.State) {
	if w.node.Labels == nil {
		w.node.Labels = map[string]string{}
	}
	w.node.Labels[nodemark.StateLabel] = string(state)
}

// remediate is fault-remediation: status updates and objects, one thing at a time.
func (w *world) remediate() {
	for range 20 {
		s := repair.Next(w.repairView(), w.repairs, repair.Policy{RecoveryWithin: repair.DefaultRecoveryWithin, UnrepairedAfter: repair.DefaultUnrepairedAfter}, w.now)
		if s.Label != "" && w.node != nil && w.node.Labels[nodemark.StateLabel] != string(s.Label) {
			w.write()
			w.label(s.Label)
		}
		if len(s.Writes) == 0 && s.Create == nil {
			return
		}
		w.write()
		w.log("fault-remediation", "%s: %s", s.Reason, s.Message)
		for _, x := range s.Writes {
			w.update(record.FaultRemediation, x.ID, x.Revision, x.Status, x.ExpireAt)
		}
		if s.Create != nil {
			w.create(s.Create.Attempt)
		}
	}
	w.t.Fatalf("the repair does not come to rest:\n%s", w.out.String())
}

// sweep drops the claims of maintenance objects that do not exist.
func (w *world) sweep() {
	if w.node == nil {
		return
	}
	claimed, exists := map[string]string{}, map[string]bool{}
	if uid := w.node.Annotations[nodemark.RepairAnnotation]; uid != "" {
		claimed[nodeName] = uid
	}
	for _, o := range w.objects {
		exists[o.UID] = true
	}
	for range w.claims.Orphans(claimed, exists, w.now, repair.DefaultOrphanedAfter) {
		w.write()
		w.log("fault-remediation", "ClaimOrphaned: %s", claimed[nodeName])
		delete(w.node.Annotations, nodemark.RepairAnnotation)
	}
}

func (w *world) create(a record.Attempt) {
	if w.objects[a.Name] != nil {
		w.t.Errorf("%s is created twice", a.Name)
	}
	w.objects[a.Name] = &object{
		name: a.Name, group: a.Group, ordinal: a.Ordinal, createdAt: w.now,
		Object: janitor.Object{UID: "object-" + strconv.Itoa(len(w.objects)+1), Session: a.Session},
		health: healthrule.Result{State: healthrule.Unknown, Reason: healthrule.ReasonNoMatches},
	}
}

func (w *world) repairView() repair.View {
	v := repair.View{Node: repair.Node{Name: nodeName, Presence: repair.Absent}, Records: w.list(record.Selector{
		Strategy: record.Process, Any: []record.Selector{{Open: record.Yes()}, {Repaired: record.Yes()}},
	})}
	if n := w.node; n != nil {
		v.Node = repair.Node{
			Name: n.Name, Presence: repair.Present, Identity: kube.NodeIdentity(n), Session: n.Annotations[nodemark.SessionAnnotation],
			Unknown: n.Annotations[nodemark.UnknownAnnotation] != "",
			Claim:   n.Annotations[nodemark.RepairAnnotation], Marked: n.Spec.Unschedulable, Ready: kube.NodeReady(n), ReadySince: kube.NodeReadySince(n),
			Kubelet: kubelet.Liveness{State: w.kubelet},
		}
	}
	for _, due := range eviction.Pending(w.pods, w.eviction, w.now) {
		v.PodsBack = append(v.PodsBack, due.Pod.Namespace+"/"+due.Pod.Name)
	}
	v.Boots = fault.BootsOf(w.list(record.Selector{}), v.Node.Session, v.Node.Identity.BootID)
	if cur, ok := repair.Current(v.Records); ok {
		v.Object = repair.Object{Presence: repair.Absent}
		if o := w.objects[cur.Attempt.Name]; o != nil {
			v.Object = repair.Object{
				Presence: repair.Present, UID: o.UID, CreatedAt: o.createdAt, Session: o.Session, Group: o.group, Ordinal: o.ordinal,
				Health: o.health, Unsent: o.unsent, SessionOver: o.over, PriorBoot: o.PreBoot, ObservedBoot: o.observed,
			}
		}
	}
	return v
}

// same compares two Nodes as the API server would.
func same(a, b *corev1.Node) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}
