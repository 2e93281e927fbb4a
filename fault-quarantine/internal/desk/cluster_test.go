package desk_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/internal/desk"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/outcome"
	"github.com/nvidia/nvsentinel/internal/testkit"
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
	if !node.Spec.Unschedulable || nodemark.Session(node) != f.ID || node.Labels["team"] != "a" {
		t.Errorf("not quarantined: %+v %+v", node.Spec, node.Annotations)
	}
	if d.Rings(made, node) {
		t.Error("the desk's own patch rings the node")
	}
	if !d.Rings(made, node) {
		t.Error("what looks like its patch rings no node for ever")
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
	if node.Spec.Unschedulable || nodemark.Bears(node) || node.Labels["team"] != "a" {
		t.Errorf("not released: %+v %+v", node.Spec, node.Annotations)
	}
}

// TestALostRaceIsLookedAtAgain: a Node that changed since it was read is no
// failure.
func TestALostRaceIsLookedAtAgain(t *testing.T) {
	d := newDesk(t, storetest.SQLite(t), &books{node: newNode(), fail: fmt.Errorf("node n1: %w", kube.ErrConflict)})
	err := d.Handle(t.Context(), "n1")
	if _, why, waits := outcome.AsWait(err); !waits || !strings.Contains(why, "changed meanwhile") {
		t.Errorf("Handle = %v, want another look soon", err)
	}
}

// meddled is a Node that somebody uncordons while it is marked.
type meddled struct {
	*books
	during func(was, is *corev1.Node)
}

func (m meddled) Patch(ctx context.Context, before *corev1.Node, mutate func(*corev1.Node)) (*corev1.Node, error) {
	after, err := m.books.Patch(ctx, before, func(n *corev1.Node) { mutate(n); n.ResourceVersion = "2" })
	foreign := after.DeepCopy()
	foreign.ResourceVersion, foreign.Spec.Unschedulable = "3", false
	m.during(before, after)
	m.during(after, foreign)
	m.node = foreign
	return after, err
}

// TestAChangeDuringTheMarkingIsSeen: the bell is still while the Node is
// written, and what it would have rung for is looked at.
func TestAChangeDuringTheMarkingIsSeen(t *testing.T) {
	s, nodes := storetest.SQLite(t), &books{node: newNode()}
	var rung []bool
	var d *desk.Desk
	d = newDesk(t, s, meddled{nodes, func(was, is *corev1.Node) { rung = append(rung, d.Rings(was, is)) }})
	f := event(1, false, "79", "GPU-1")
	storetest.MustAppend(t, s, f)
	if _, _, wait := outcome.AsWait(d.Handle(t.Context(), "n1")); !wait {
		t.Error("somebody uncordoned the node while it was marked, and nobody looks again")
	}
	if slices.Contains(rung, true) {
		t.Error("the bell rang in the middle of the work")
	}
	d.Nodes = nodes
	handle(t, d)
	if got := storetest.MustGet(t, s, f.ID).Status.NodeQuarantined; got != record.QuarantineCanceled {
		t.Errorf("the record is %q", got)
	}
}

// TestEventsNeverHoldUpTheWork: without room an Event is counted and lost.
func TestEventsNeverHoldUpTheWork(t *testing.T) {
	lost := prometheus.NewCounter(prometheus.CounterOpts{Name: "lost"})
	nodes := desk.Cluster{Clock: testkit.NewClock(), Later: desk.NewNotes(nil, nil, lost)} // nobody writes them
	for range 5000 {
		nodes.Note(t.Context(), newNode(), desk.Event{Reason: "NodeQuarantined"})
	}
	if n := testutil.ToFloat64(lost); n != 5000-4096 {
		t.Errorf("%v events are counted as lost", n)
	}
}
