package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/internal/reconciler"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/retry"
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
	d := newReconciler(t, s, nil)
	d.Nodes = reconciler.Cluster{Client: cluster.Client()}
	f := event(1, false, "79", "GPU-1")
	storetest.MustAppend(t, s, f)
	handle(t, d)
	node, err := cluster.Client().CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !node.Spec.Unschedulable || nodemark.Session(node) != f.ID || node.Labels["team"] != "a" {
		t.Errorf("not quarantined: %+v %+v", node.Spec, node.Annotations)
	}
	if d.Concerns(made, node) {
		t.Error("the reconciler's own patch enqueues the node")
	}
	if !d.Concerns(made, node) {
		t.Error("what looks like its patch never enqueues the node")
	}
	_, err = d.Nodes.Patch(t.Context(), made, func(n *corev1.Node) { n.Spec.Unschedulable = false; n.Labels["x"] = "y" })
	if !errors.Is(err, kube.ErrConflict) {
		t.Errorf("a patch under an old resourceVersion: %v", err)
	}
	storetest.MustAppend(t, s, event(2, true, ""))
	handle(t, d)
	if node, err = cluster.Client().CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if node.Spec.Unschedulable || nodemark.HasMarks(node) || node.Labels["team"] != "a" {
		t.Errorf("not released: %+v %+v", node.Spec, node.Annotations)
	}
}

// TestConflictIsRetried: a Node that changed since it was read is no
// failure.
func TestConflictIsRetried(t *testing.T) {
	d := newReconciler(t, storetest.SQLite(t), &fakeNode{node: newNode(), fail: fmt.Errorf("node n1: %w", kube.ErrConflict)})
	err := d.Handle(t.Context(), "n1")
	if _, why, waits := retry.AsWait(err); !waits || !strings.Contains(why, "changed by another client") {
		t.Errorf("Handle = %v, want another look soon", err)
	}
}

// meddled is a Node that somebody uncordons while it is marked.
type meddled struct {
	*fakeNode
	during func(was, is *corev1.Node)
}

func (m meddled) Patch(ctx context.Context, before *corev1.Node, mutate func(*corev1.Node)) (*corev1.Node, error) {
	after, err := m.fakeNode.Patch(ctx, before, func(n *corev1.Node) { mutate(n); n.ResourceVersion = "2" })
	foreign := after.DeepCopy()
	foreign.ResourceVersion = "3"
	uncordon(foreign, "alice")
	m.during(before, after)
	m.during(after, foreign)
	m.node = foreign
	return after, err
}

// TestAChangeDuringTheMarkingIsSeen: the source is silent while the Node is
// written, and what it would have enqueued the node for is looked at.
func TestAChangeDuringTheMarkingIsSeen(t *testing.T) {
	s, nodes := storetest.SQLite(t), &fakeNode{node: newNode()}
	var concerned []bool
	var d *reconciler.Reconciler
	d = newReconciler(t, s, meddled{nodes, func(was, is *corev1.Node) { concerned = append(concerned, d.Concerns(was, is)) }})
	f := event(1, false, "79", "GPU-1")
	storetest.MustAppend(t, s, f)
	if _, _, wait := retry.AsWait(d.Handle(t.Context(), "n1")); !wait {
		t.Error("somebody uncordoned the node while it was marked, and nobody looks again")
	}
	if slices.Contains(concerned, true) {
		t.Error("the node was enqueued in the middle of the work")
	}
	d.Nodes = nodes
	handle(t, d)
	if got := storetest.MustGet(t, s, f.ID).Status.NodeQuarantined; got != record.QuarantineCanceled {
		t.Errorf("the record is %q", got)
	}
}
