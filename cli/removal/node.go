package removal

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// mark is one thing that a Node bears.
type mark struct{ kind, key, value string }

func (m mark) text() string {
	if m.value == "" || m.kind == NodeAnnotation {
		return m.key
	}
	return m.key + "=" + m.value
}

// marksOf are all marks of a Node, whosever they are.
func marksOf(node *corev1.Node) (out []mark) {
	if node.Spec.Unschedulable {
		out = append(out, mark{NodeCordon, "unschedulable", ""})
	}
	for _, t := range node.Spec.Taints {
		out = append(out, taintMark(t.Key, t.Value, string(t.Effect)))
	}
	for _, key := range slices.Sorted(maps.Keys(node.Labels)) {
		out = append(out, mark{NodeLabel, key, node.Labels[key]})
	}
	for _, key := range slices.Sorted(maps.Keys(node.Annotations)) {
		out = append(out, mark{NodeAnnotation, key, node.Annotations[key]})
	}
	return out
}

func taintMark(key, value, effect string) mark { return mark{NodeTaint, key, value + ":" + effect} }

// ofNode are the items of a Node. Ours is what marks.Clean takes off. All of a node
// that is in quarantine, or whose repair has not ended, stays.
func ofNode(node *corev1.Node, open map[string]bool, o Options) (out []Item) {
	m := nodemark.Read(node)
	verdict, removes := Managed, true
	if m.Session != "" || len(m.Unknown) > 0 || open[m.Claim] {
		verdict, removes = InQuarantine, o.ReleaseNodes
		if removes {
			verdict = Released
		}
	}
	clean := node.DeepCopy()
	marks.Clean(clean)
	stay := marksOf(clean)
	for _, x := range marksOf(node) {
		item := Item{Kind: x.kind, Name: node.Name, Mark: x.text(), Remove: removes, Reason: verdict}
		if slices.Contains(stay, x) {
			item.Remove, item.Reason = false, stays(x, m.Applied)
		}
		if item.Reason != "" {
			out = append(out, item)
		}
	}
	for _, c := range node.Status.Conditions {
		item := Item{Kind: NodeCondition, Name: node.Name, Mark: ConditionMark(c), Remove: removes, Reason: verdict}
		switch nodemark.AuthorOf(c) {
		case nodemark.Stranger:
			continue
		case nodemark.Perhaps:
			item.Remove, item.Reason = false, Uncertain
		case nodemark.Connector:
		}
		out = append(out, item)
	}
	return out
}

// ConditionMark is the mark of an item that is a condition.
func ConditionMark(c corev1.NodeCondition) string { return string(c.Type) + "=" + string(c.Status) }

// stays is why a mark stays that marks.Clean leaves; empty where nobody would take it
// for ours.
func stays(x mark, applied nodemark.Applied) Reason {
	switch {
	case x.kind == NodeCordon && applied.CordonPreExisting:
		return PreExisting
	case x.kind == NodeTaint && slices.ContainsFunc(applied.Taints, func(t nodemark.AppliedTaint) bool {
		return t.PreExisting && taintMark(t.Key, t.Value, t.Effect) == x
	}):
		return PreExisting
	case x.kind == NodeAnnotation && x.key == nodemark.ResetAnnotation:
		return ServicesOff
	case x.kind == NodeLabel && slices.Contains(nodemark.FactLabels(), x.key):
		return OfAPerson
	case (x.kind == NodeLabel || x.kind == NodeAnnotation || x.kind == NodeTaint) && nodemark.HasProjectPrefix(x.key):
		return Uncertain
	}
	return ""
}

func ofPods(pods []metav1.ObjectMeta) (out []Item) {
	for _, p := range pods {
		out = append(out, Item{
			Kind: PodAnnotation, Namespace: p.Namespace, Name: p.Name, Mark: nodemark.DevicesAnnotation, Remove: true, Reason: Managed,
			Target: Target{UID: string(p.UID), Was: p.Annotations[nodemark.DevicesAnnotation]},
		})
	}
	return out
}
