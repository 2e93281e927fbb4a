package access

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/health-monitors/labeler/labeling"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// TestTheLabelerWritesItsLabelsOnly: with its account nothing else of a Node can be
// changed, nothing of one that is opted out, and its labels by nobody else of the
// suite.
func TestTheLabelerWritesItsLabelsOnly(t *testing.T) {
	w := newWorld(t)
	node, plain := w.node(t, "victim"), w.plain(t, "plain")
	out := w.add(t, localcluster.NodeSpec{Name: "out", Labels: map[string]string{nodemark.ManagedLabel: nodemark.ManagedOptOut}})
	former := w.add(t, localcluster.NodeSpec{Name: "former", Labels: map[string]string{nodemark.FormerManagedLabel: nodemark.ManagedOptOut}})
	labeler := w.account(t, "labeler")
	inForce(t, labeler, node.Name)
	gpus := nodemark.CountLabelsOf("gpu")
	was := w.now(t, node.Name)
	for what, c := range map[string]change{
		"another label":             {patch: labels("example.com/pool", "x")},
		"a label like its own":      {patch: labels("nvsentinel.dgxc.nvidia.com/gpu.count.other", "1")},
		"its name elsewhere":        {patch: labels("example.com/gpu.count.current", "1")},
		"a name within its own":     {patch: labels("nvsentinel.dgxc.nvidia.com/dcgm.version.x", "4.x")},
		"opt out":                   {patch: labels(nodemark.ManagedLabel, nodemark.ManagedOptOut)},
		"no GPU":                    {patch: labels("nvidia.com/gpu.present", nil)},
		"the role lost":             {patch: labels("node-role.kubernetes.io/control-plane", nil)},
		"the state of the node":     {patch: labels(nodemark.StateLabel, nil)},
		"all labels lost":           {patch: metadata("labels", nil)},
		"its own beside another":    {patch: metadata("labels", map[string]any{nodemark.KataEnabledLabel: "true", "example.com/pool": "x"})},
		"a version that is none":    {patch: labels(nodemark.DCGMVersionLabel, "4")},
		"a driver that is not":      {patch: labels(nodemark.DriverInstalledLabel, "false")},
		"Kata that is neither":      {patch: labels(nodemark.KataEnabledLabel, "maybe")},
		"a count that is none":      {patch: labels(gpus.Current, "many")},
		"a group that is none":      {patch: labels(gpus.Group, "8")},
		"an annotation":             {patch: annotations("example.com/owner", "x")},
		"a session":                 {patch: annotations(nodemark.SessionAnnotation, nil)},
		"a repair":                  {patch: annotations(nodemark.RepairAnnotation, "forged")},
		"a cordon":                  {patch: spec("unschedulable", true)},
		"a taint":                   {patch: spec("taints", []any{})},
		"another machine":           {patch: spec("providerID", "kwok://another")},
		"an owner that is gone":     {patch: metadata("ownerReferences", []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "none"}})},
		"a finalizer":               {patch: metadata("finalizers", []any{"example.com/for-ever"})},
		"no GPUs":                   {status: true, patch: status("allocatable", map[string]any{"nvidia.com/gpu": "0"})},
		"a condition":               connectorCondition("GpuAllWatch"),
		"another boot":              {status: true, patch: status("nodeInfo", map[string]any{"bootID": "forged"})},
		"its own label by a status": {status: true, patch: labels(nodemark.KataEnabledLabel, "true")},
	} {
		if err := c.by(t.Context(), labeler, node.Name); !refused(err) {
			t.Errorf("%s: %v, want it refused", what, err)
		}
	}
	if err := labeler.CoreV1().Nodes().Delete(t.Context(), node.Name, metav1.DeleteOptions{}); !refused(err) {
		t.Errorf("the node itself: %v, want it refused", err)
	}
	w.unchanged(t, was)
	for _, opted := range []*corev1.Node{out, former} {
		if err := (change{patch: labels(nodemark.KataEnabledLabel, "true")}).by(t.Context(), labeler, opted.Name); !refused(err) {
			t.Errorf("a node that is opted out: %v, want it refused", err)
		}
	}
	for _, other := range []string{"fault-quarantine", "node-drainer", "fault-remediation", "janitor", "kubernetes-object-monitor"} {
		if err := (change{patch: labels(gpus.Expected, "99")}).by(t.Context(), w.account(t, other), node.Name); !refused(err) {
			t.Errorf("%s writes the labeler's labels: %v, want it refused", other, err)
		}
	}
	w.labels(t, plain)
}

// labels writes every label of the labeler with its own code, and takes it off.
func (w *world) labels(t *testing.T, node *corev1.Node) {
	t.Helper()
	rulings := []labeling.Ruling{
		{Key: nodemark.DCGMVersionLabel, Value: "4.x"}, {Key: nodemark.DriverInstalledLabel, Value: "true"}, {Key: nodemark.KataEnabledLabel, Value: "false"},
	}
	for _, class := range []string{"gpu", "nic", "my-devices"} {
		keys := nodemark.CountLabelsOf(class)
		rulings = append(rulings, labeling.Ruling{Key: keys.Current, Value: "8"}, labeling.Ruling{Key: keys.Expected, Value: "999999"}, labeling.Ruling{Key: keys.Group, Value: "0123abcd"})
	}
	for _, step := range []string{"writes", "takes off"} {
		verdict := labeling.Verdict{Rulings: rulings}
		_, err := kube.PatchNode(t.Context(), w.account(t, "labeler"), w.now(t, node.Name), func(n *corev1.Node) { n.Labels = verdict.Apply(n.Labels) })
		if err != nil || len(verdict.Changes(w.now(t, node.Name).Labels)) > 0 {
			t.Errorf("the labeler %s its labels: %v", step, err)
		}
		for i := range rulings {
			rulings[i].Value = ""
		}
	}
}
