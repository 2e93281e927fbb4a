package reconciler_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/fault-quarantine/internal/reconciler"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

func TestRelevant(t *testing.T) {
	marked := func(edit func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "gpu-1", Labels: map[string]string{}, Annotations: map[string]string{nodemark.SessionAnnotation: "s1"},
		}}
		n.Spec.Unschedulable = true
		edit(n)
		return n
	}
	none := func(*corev1.Node) {}
	taint := func(key string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}
	}
	claim := func(n *corev1.Node) { n.Annotations[nodemark.RepairAnnotation] = "uid" }
	over := func(n *corev1.Node) {
		n.Annotations = map[string]string{nodemark.QuarantineHealthEventIsCordoned: nodemark.True}
	}
	kept := func(n *corev1.Node) { over(n); claim(n) }
	tests := []struct {
		name          string
		before, after *corev1.Node
		want          bool
	}{
		{"came", nil, marked(none), true},
		{"went", marked(none), nil, true},
		{"nothing", marked(none), marked(none), false},
		{"another taint", marked(none), marked(taint("gpu-fault")), true},
		{"a taint gone", marked(taint("gpu-fault")), marked(none), true},
		{"the taint that follows the cordon", marked(none), marked(taint(corev1.TaintNodeUnschedulable)), false},
		{"both taints", marked(none), marked(func(n *corev1.Node) { taint(corev1.TaintNodeUnschedulable)(n); taint("gpu-fault")(n) }), true},
		{"uncordoned by hand", marked(taint(corev1.TaintNodeUnschedulable)), marked(func(n *corev1.Node) { n.Spec.Unschedulable = false }), true},
		{"session", marked(none), marked(func(n *corev1.Node) { n.Annotations[nodemark.SessionAnnotation] = "s2" }), true},
		{"claimed in session", marked(none), marked(claim), false},
		{"claim gone in session", marked(claim), marked(none), false},
		{"claim gone after the session", marked(kept), marked(over), true},
		{"claimed after the session", marked(over), marked(kept), false},
		{"opted out", marked(none), marked(func(n *corev1.Node) { n.Labels[nodemark.ManagedLabel] = nodemark.ManagedOptOut }), true},
		{"state label", marked(none), marked(func(n *corev1.Node) { n.Labels[nodemark.StateLabel] = string(nodemark.Draining) }), false},
	}
	for _, tc := range tests {
		if got := reconciler.Relevant(tc.before, tc.after); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
