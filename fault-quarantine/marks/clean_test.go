package marks_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// TestCleanLeavesTheNodeAsItWas: whatever a session put on a node, in whatever state
// the services were stopped, the node has afterwards what it had before it.
func TestCleanLeavesTheNodeAsItWas(t *testing.T) {
	taint := record.Taint{Key: "gpu", Value: "xid", Effect: "NoSchedule"}
	session := marks.Desired{
		Session: "s", RuleSets: []string{"fatal"}, Faults: []record.Event{{ID: "s"}}, Unknown: []string{"u"},
		Effects: record.Effects{Cordon: true, Taints: []record.Taint{taint}, Labels: []record.Label{{Key: "faulty", Value: "gpu"}}},
	}
	bare := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"k8saas.nvidia.com/cordon-by": "ann"}, Annotations: map[string]string{"theirs": "x"}}}
	held := *bare.DeepCopy()
	held.Spec = corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "gpu", Value: "xid", Effect: "NoSchedule"}, {Key: corev1.TaintNodeUnschedulable, Effect: "NoSchedule"}}}
	held.Labels["faulty"] = "by hand"
	for name, before := range map[string]corev1.Node{"untouched": bare, "cordoned, tainted and labelled by others": held} {
		for _, prefix := range []string{nodemark.DefaultLabelPrefix, "", "example.com/"} {
			for change, mutate := range map[string]func(*corev1.Node){
				"in session": func(*corev1.Node) {},
				"claimed":    func(n *corev1.Node) { nodemark.SetClaim(n, "uid") },
				"marked as a lemon": func(n *corev1.Node) {
					nodemark.SetRepeatOffender(n, nodemark.RepeatOffenderMark{Label: true, Note: "{}"})
				},
				"released":               func(n *corev1.Node) { marks.Mutator{LabelPrefix: prefix}.Apply(n, marks.Desired{}, time.Now()) },
				"uncordoned by a person": func(n *corev1.Node) { n.Spec.Unschedulable = before.Spec.Unschedulable },
				"released, but claimed": func(n *corev1.Node) {
					nodemark.SetClaim(n, "uid")
					marks.Mutator{LabelPrefix: prefix}.Apply(n, marks.Desired{}, time.Now())
				},
				"remediated unsuccesfully": func(n *corev1.Node) { nodemark.SetState(n, nodemark.RemediationFailed) },
			} {
				node := before.DeepCopy()
				marks.Mutator{LabelPrefix: prefix}.Apply(node, session, time.Now())
				marks.FollowCordon(node)
				mutate(node)
				if !node.Spec.Unschedulable {
					marks.FollowCordon(node)
				}
				marks.Clean(node)
				want := before.DeepCopy()
				if prefix == nodemark.DefaultLabelPrefix && !before.Spec.Unschedulable {
					delete(want.Labels, "k8saas.nvidia.com/cordon-by") // ours took its place
				}
				if diff := cmp.Diff(want, node, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s, %s, prefix %q (-want +got):\n%s", name, change, prefix, diff)
				}
			}
		}
	}
}

// TestCleanTouchesNothingOfOthers: without a mark of the project there is no change, whatever
// the node has.
func TestCleanTouchesNothingOfOthers(t *testing.T) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{"nvidia.com/gpu.deploy.dcgm": "false", nodemark.ManagedLabel: "false", nodemark.RepeatOffenderLabel: "true", "k8saas.nvidia.com/cordon-by": "ann"},
			Annotations: map[string]string{"theirs": "x", nodemark.ResetAnnotation: "uid"},
		},
		Spec: corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "gpu", Effect: "NoSchedule"}}},
	}
	before, err := json.Marshal(node)
	if err != nil {
		t.Fatal(err)
	}
	marks.Clean(node)
	after, err := json.Marshal(node)
	if err != nil || string(before) != string(after) {
		t.Errorf("before %s\nafter  %s (%v)", before, after, err)
	}
}
