package reconciler_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/budget"
	"github.com/nvidia/nvsentinel/fault-quarantine/internal/quota"
	"github.com/nvidia/nvsentinel/fault-quarantine/internal/reconciler"
	"github.com/nvidia/nvsentinel/fault-quarantine/rulematch"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// racks are several Nodes without an API server.
type racks struct{ nodes map[string]*fakeNode }

func newRacks(names ...string) *racks {
	r := &racks{nodes: map[string]*fakeNode{}}
	for _, name := range names {
		node := newNode()
		node.Name = name
		r.nodes[name] = &fakeNode{node: node}
	}
	return r
}

func (r *racks) Read(ctx context.Context, name string) (*corev1.Node, error) {
	return r.nodes[name].Read(ctx, name)
}

func (r *racks) Patch(ctx context.Context, before *corev1.Node, mutate func(*corev1.Node)) (*corev1.Node, error) {
	return r.nodes[before.Name].Patch(ctx, before, mutate)
}

func (r *racks) Note(ctx context.Context, node *corev1.Node, e reconciler.Event) {
	r.nodes[node.Name].Note(ctx, node, e)
}

func (r *racks) Get(name string) (*corev1.Node, error) { return r.nodes[name].node, nil }

func (r *racks) List(labels.Selector) ([]*corev1.Node, error) {
	var out []*corev1.Node
	for _, b := range r.nodes {
		out = append(out, b.node)
	}
	return out, nil
}

// replica is a reconciler with a budget of its own reading, for one node at once.
func replica(t *testing.T, s store.Store, nodes *racks) *reconciler.Reconciler {
	t.Helper()
	d := newReconciler(t, s, nodes)
	rules := quota.Rules{Limits: []budget.Limit{{Name: "b", Nodes: new(1)}}, Counted: labels.Everything()}
	d.Quota = quota.New(nodes, func() (bool, string) { return true, "" }, testkit.NewClock(), rules)
	return d
}

func backlog(t *testing.T, d *reconciler.Reconciler) []string {
	t.Helper()
	var enqueued []string
	if err := d.Backlog(t.Context(), func(key string) { enqueued = append(enqueued, key) }); err != nil {
		t.Fatal(err)
	}
	return enqueued
}

func faultOf(node string) record.Record {
	r := event(1, false, "79", "GPU-1")
	r.Event.NodeName = node
	return r
}

// late is a store whose update comes after something else has happened.
type late struct {
	store.Store
	before func()
}

func (l late) Update(ctx context.Context, w record.Writer, changes []store.Change) ([]record.Record, error) {
	if do := l.before; do != nil {
		do()
	}
	return l.Store.Update(ctx, w, changes)
}

// TestALeaderThatWritesLate: one leader takes the only place and is held up right
// before it writes that down; the next reads the budget and gives the place to
// another node. The first then writes nothing.
func TestALeaderThatWritesLate(t *testing.T) {
	s, nodes := storetest.SQLite(t), newRacks("n1", "n2")
	one, two := faultOf("n1"), faultOf("n2")
	storetest.MustAppend(t, s, one, two)
	first := replica(t, s, nodes)
	backlog(t, first)
	second := replica(t, s, nodes)
	first.Store = late{s, func() {
		first.Store = s
		backlog(t, second)
		if err := second.Handle(t.Context(), "n2"); err != nil {
			t.Errorf("the second leader: %v", err)
		}
	}}
	if _, _, wait := retry.AsWait(first.Handle(t.Context(), "n1")); !wait {
		t.Error("the first leader's write was not refused")
	}
	if r := storetest.MustGet(t, s, one.ID); r.Evaluated() || !clean(nodes, "n1") {
		t.Errorf("two nodes are in quarantine, 1 allowed: %+v", r.Status)
	}
	if r := storetest.MustGet(t, s, two.ID); r.Reason() != record.Matched || clean(nodes, "n2") {
		t.Errorf("the place was given to nobody: %+v", r.Status)
	}
}

func clean(nodes *racks, name string) bool { return !nodemark.HasMarks(nodes.nodes[name].node) }

// TestStoredSessionsCount: a leader dies after it wrote the verdict and before
// it marked the Node; the next counts that session although no Node bears it.
func TestStoredSessionsCount(t *testing.T) {
	s, nodes := storetest.SQLite(t), newRacks("n1", "n2")
	storetest.MustAppend(t, s, faultOf("n1"), faultOf("n2"))
	first := replica(t, s, nodes)
	backlog(t, first)
	first.Nodes = patchFails{nodes.nodes["n1"], context.DeadlineExceeded}
	if err := first.Handle(t.Context(), "n1"); err == nil {
		t.Fatal("the Node was patched")
	}
	second := replica(t, s, nodes)
	if enqueued := backlog(t, second); !slices.Contains(enqueued, "n1") || !slices.Contains(enqueued, "n2") {
		t.Errorf("enqueued %v", enqueued)
	}
	if _, why, parked := retry.AsPark(second.Handle(t.Context(), "n2")); !parked || why != string(record.Held) {
		t.Errorf("the second node is not held: %q", why)
	}
	if notes := nodes.nodes["n2"].notes; !slices.Equal(notes, []string{"QuarantineHeld"}) {
		t.Errorf("told of the held node: %v", notes)
	}
	if err := second.Handle(t.Context(), "n1"); err != nil || clean(nodes, "n1") {
		t.Errorf("the first node is not marked: %v", err)
	}
	third := replica(t, s, nodes) // finds one in quarantine and one in the queue
	backlog(t, third)
	recovery := event(2, true, "")
	storetest.MustAppend(t, s, recovery)
	if err := third.Handle(t.Context(), "n1"); err != nil || !clean(nodes, "n1") {
		t.Errorf("the budget held a release: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	enqueued := make(chan string, 1)
	ended := make(chan error)
	go func() { ended <- third.Quota.Source(ctx, func(name string) { enqueued <- name; cancel() }) }()
	select {
	case name := <-enqueued:
		if name != "n2" {
			t.Errorf("enqueued %s", name)
		}
	case <-time.After(2 * time.Minute):
		t.Error("the held node is not enqueued")
		cancel()
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := third.Handle(t.Context(), "n2"); err != nil || clean(nodes, "n2") {
		t.Errorf("the held node got no place: %v", err)
	}
}

// TestAStaleCache runs on a real API server with an informer that has stopped:
// the budget holds, a person's hand is seen, and releases go on.
func TestAStaleCache(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	for i := range 4 {
		name := fmt.Sprintf("stale-%d", i)
		if _, err := cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: name, ProviderID: "p1"}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := cluster.DeleteNode(context.Background(), name); err != nil {
				t.Error(err)
			}
		})
	}
	cache := kube.WatchNodes(cluster.Client(), kube.Strip)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- cache.Run(ctx) }()
	if err := cache.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	s := storetest.SQLite(t)
	d := newReconciler(t, s, nil)
	d.Nodes = reconciler.Cluster{Client: cluster.Client()}
	d.Quota = quota.New(cache.Lister, cache.Synced, testkit.NewClock(), quota.Rules{
		Limits: []budget.Limit{{Name: "b", Nodes: new(2)}}, Counted: labels.Everything(),
	})
	backlog(t, d)
	var ids []string
	for i := range 4 {
		f := faultOf(fmt.Sprintf("stale-%d", i))
		storetest.MustAppend(t, s, f)
		ids = append(ids, f.ID)
		_, _, parked := retry.AsPark(d.Handle(t.Context(), f.Event.NodeName))
		if held := i >= 2; parked != held {
			t.Errorf("node %d: held is %v", i, parked)
		}
	}
	node, err := d.Nodes.Read(t.Context(), "stale-0")
	if err != nil || !node.Spec.Unschedulable {
		t.Fatalf("not quarantined: %v", err)
	}
	if _, err := d.Nodes.Patch(t.Context(), node, func(n *corev1.Node) { uncordon(n, "alice") }); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"stale-0", "stale-2"} {
		if err := d.Handle(t.Context(), name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i, want := range []record.Quarantine{record.QuarantineCanceled, record.Quarantined, record.Quarantined, ""} {
		if r := storetest.MustGet(t, s, ids[i]); r.Status.NodeQuarantined != want {
			t.Errorf("node %d is %q, want %q", i, r.Status.NodeQuarantined, want)
		}
	}
}

// TestFailingRuleIsReported: an expression whose type is known only when it runs
// is no answer: the fault is left unevaluated, reported, and evaluated once it can be.
func TestFailingRuleIsReported(t *testing.T) {
	s, nodes := storetest.SQLite(t), &fakeNode{node: newNode()}
	d := newReconciler(t, s, nodes)
	rules, err := rulematch.Compile([]rulematch.Set{{
		Enabled: true, Name: "number", Cordon: rulematch.Cordon{ShouldCordon: true},
		Match: rulematch.Match{All: []rulematch.Rule{{Kind: "HealthEvent", Expression: "node.metadata.labels.slots"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	d.Rules = rules
	registry := prometheus.NewRegistry()
	d.Metrics, d.Log = reconciler.NewMetrics(registry), slog.New(slog.DiscardHandler)
	f := event(1, false, "79", "GPU-1")
	nodes.node.Labels = map[string]string{"slots": "8"}
	storetest.MustAppend(t, s, f)
	if _, why, parked := retry.AsPark(d.Handle(t.Context(), "n1")); !parked || why != "RuleNotEvaluated" {
		t.Errorf("parked %v: %q", parked, why)
	}
	if storetest.MustGet(t, s, f.ID).Evaluated() || !slices.Equal(nodes.notes, []string{"RuleNotEvaluated"}) {
		t.Errorf("the fault is judged, or it is not told: %v", nodes.notes)
	}
	d.Rules, err = rulematch.Compile(rulematch.Default())
	if err != nil {
		t.Fatal(err)
	}
	handle(t, d)
	if r := storetest.MustGet(t, s, f.ID); r.Reason() != record.Matched {
		t.Errorf("judged %q", r.Reason())
	}
}
