package desk_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/fault-quarantine/internal/desk"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/outcome"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// TestOnARealAPIServer takes one node into quarantine and back on a real API
// server, with a foreign hand's label and a lost race on the way.
func TestOnARealAPIServer(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	made, err := cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: "n1", ProviderID: "p1", Labels: map[string]string{"team": "a"}})
	if err != nil {
		t.Fatal(err)
	}
	s := storetest.SQLite(t)
	d := newDesk(t, s, nil)
	d.Nodes = desk.Cluster{Client: cluster.Client(), Clock: d.Clock, Log: d.Log}
	f := event(1, false, "79", "GPU-1")
	storetest.MustAppend(t, s, f)
	handle(t, d)
	node, err := cluster.Client().CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !node.Spec.Unschedulable || marks.Session(node) != f.ID || node.Labels["team"] != "a" {
		t.Errorf("not quarantined: %+v %+v", node.Spec, node.Annotations)
	}
	_, err = d.Nodes.Patch(t.Context(), made, func(n *corev1.Node) { n.Spec.Unschedulable = false; n.Labels["x"] = "y" })
	if _, _, wait := outcome.AsWait(err); !wait {
		t.Errorf("a patch under an old resourceVersion: %v", err)
	}
	storetest.MustAppend(t, s, event(2, true, ""))
	handle(t, d)
	if node, err = cluster.Client().CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if node.Spec.Unschedulable || marks.Bears(node) || node.Labels["team"] != "a" {
		t.Errorf("not released: %+v %+v", node.Spec, node.Annotations)
	}
}
