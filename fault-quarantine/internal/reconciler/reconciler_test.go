package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/decision"
	"github.com/nvidia/nvsentinel/fault-quarantine/internal/quota"
	"github.com/nvidia/nvsentinel/fault-quarantine/internal/reconciler"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/fault-quarantine/rulematch"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(both{m})) }

// both stops the shared database before the shared cluster.
type both struct{ m *testing.M }

func (b both) Run() int { return pgtest.Main(b.m) }

// fakeNode is a Node without an API server that counts its patches and can fail.
type fakeNode struct {
	node    *corev1.Node
	patches int
	notes   []string
	fail    error
}

func (f *fakeNode) Read(context.Context, string) (*corev1.Node, error) {
	if f.node == nil {
		return nil, f.fail
	}
	return f.node.DeepCopy(), f.fail
}

func (f *fakeNode) Patch(_ context.Context, before *corev1.Node, mutate func(*corev1.Node)) (*corev1.Node, error) {
	if f.fail != nil {
		return nil, f.fail
	}
	after := before.DeepCopy()
	mutate(after)
	if !cmp.Equal(before, after) {
		f.patches++
		f.node = after
	}
	return after, nil
}

func (f *fakeNode) Note(_ context.Context, _ *corev1.Node, e reconciler.Event) {
	f.notes = append(f.notes, e.Reason)
}

// cache lists the Node as an informer does that has always just caught up.
func (f *fakeNode) Get(name string) (*corev1.Node, error) {
	if f.node == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
	}
	return f.node, nil
}

func (f *fakeNode) List(labels.Selector) ([]*corev1.Node, error) {
	if f.node == nil {
		return nil, nil
	}
	return []*corev1.Node{f.node}, nil
}

func newNode() *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", CreationTimestamp: metav1.NewTime(time.Unix(1, 0))}}
	node.Spec.ProviderID = "p1"
	return node
}

func newReconciler(t *testing.T, s store.Store, nodes reconciler.Nodes) *reconciler.Reconciler {
	t.Helper()
	rules, err := rulematch.Compile(rulematch.Default())
	if err != nil {
		t.Fatal(err)
	}
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	cache, ok := nodes.(quota.Cache)
	if !ok {
		cache = &fakeNode{}
	}
	queue := quota.New(cache, func() (bool, string) { return true, "" }, clock, quota.Rules{Counted: labels.Everything()})
	queue.Open(nil, nil)
	return &reconciler.Reconciler{
		Quota: queue,
		Store: s, Reported: s, Nodes: nodes, Rules: rules, Mutator: marks.Mutator{LabelPrefix: "p/"}, Retention: time.Hour,
		Clock: clock, Log: slog.New(slog.DiscardHandler),
		Metrics: reconciler.NewMetrics(prometheus.NewRegistry()), Marked: func(string) bool { return true },
	}
}

// event makes a record of the syslog monitor.
func event(seq uint64, healthy bool, code string, gpus ...string) record.Record {
	return storetest.Record("n1", func(r *record.Record) {
		r.Seq, r.SeqEpoch, r.Node = seq, "e", record.NodeIdentity{ProviderID: "p1"}
		e := &r.Event
		e.Agent, e.ComponentClass, e.CheckName = "syslog-health-monitor", "GPU", "SysLogsXIDError"
		e.IsFatal, e.IsHealthy, e.RecommendedAction, e.ProcessingStrategy = !healthy, healthy, record.ActionContactSupport, record.Process
		e.QuarantineOverrides, e.DrainOverrides, e.ErrorCode, e.EntitiesImpacted = nil, nil, nil, nil
		e.Metadata = map[string]string{record.MetadataSeqRuns: "run"}
		if code != "" {
			e.ErrorCode = []string{code}
		}
		for _, g := range gpus {
			e.EntitiesImpacted = append(e.EntitiesImpacted, record.Entity{EntityType: "GPU_UUID", EntityValue: g})
		}
	})
}

func handle(t *testing.T, d *reconciler.Reconciler) {
	t.Helper()
	if err := d.Handle(t.Context(), "n1"); err != nil {
		t.Fatal(err)
	}
}

func TestQuarantineAndRelease(t *testing.T) {
	s, nodes := storetest.SQLite(t), &fakeNode{node: newNode()}
	d := newReconciler(t, s, nodes)
	f := event(1, false, "79", "GPU-1")
	storetest.MustAppend(t, s, f)
	handle(t, d)
	got := storetest.MustGet(t, s, f.ID)
	if !nodes.node.Spec.Unschedulable || got.Status.NodeQuarantined != record.Quarantined || got.Status.QuarantineFinishTimestamp == nil {
		t.Errorf("not quarantined: %+v %+v", nodes.node.Spec, got.Status)
	}
	patches := nodes.patches
	handle(t, d)
	if nodes.patches != patches {
		t.Error("a second look patched the node again")
	}
	r := event(2, true, "")
	storetest.MustAppend(t, s, r)
	handle(t, d)
	if nodes.node.Spec.Unschedulable || nodemark.HasMarks(nodes.node) {
		t.Errorf("not released: %+v", nodes.node)
	}
	if got := storetest.MustGet(t, s, r.ID); got.Status.NodeQuarantined != record.UnQuarantined || got.ExpireAt == nil {
		t.Errorf("the recovery is not stamped: %+v", got.Status)
	}
}

// TestARecoveryWaitsForAChain: the node stays marked until fault-remediation has recorded
// that the chain succeeded, and its label enqueues the node then.
func TestARecoveryWaitsForAChain(t *testing.T) {
	s, nodes := storetest.SQLite(t), &fakeNode{node: newNode()}
	d := newReconciler(t, s, nodes)
	f := event(1, false, "79", "GPU-1")
	storetest.MustAppend(t, s, f)
	handle(t, d)
	setAttempt := func(change func(*record.Attempt)) {
		t.Helper()
		r := storetest.MustGet(t, s, f.ID)
		a := record.Attempt{Kind: "RepairRun", Name: "n1-x", UID: "u", Chain: "c", Session: f.ID, State: "Unknown", Reason: "Created", SubmittedAt: d.Clock.Now(), SignalSent: true}
		change(&a)
		r.Status.Remediation = &record.Remediation{Cause: f.ID, Attempts: []record.Attempt{a}}
		if _, err := s.Update(t.Context(), record.FaultRemediation, []store.Change{{ID: r.ID, Revision: r.Revision, Status: r.Status}}); err != nil {
			t.Fatal(err)
		}
	}
	setAttempt(func(*record.Attempt) {})
	storetest.MustAppend(t, s, event(2, true, ""))
	if _, why, parked := retry.AsPark(d.Handle(t.Context(), "n1")); !parked || why != decision.WaitRepair || !nodes.node.Spec.Unschedulable {
		t.Errorf("parked %v, %q, %+v", parked, why, nodes.node.Spec)
	}
	labelled := func() *corev1.Node {
		n := nodes.node.DeepCopy()
		n.Labels = map[string]string{nodemark.StateLabel: string(nodemark.RemediationSucceeded)}
		return n
	}
	if !d.Concerns(nodes.node, labelled()) {
		t.Error("the chain's end enqueues nobody")
	}
	setAttempt(func(a *record.Attempt) { a.State, a.FinishedAt = "Healthy", new(d.Clock.Now()) })
	handle(t, d)
	if nodes.node.Spec.Unschedulable || d.Concerns(nodes.node, labelled()) {
		t.Errorf("not released: %+v", nodes.node.Spec)
	}
}

// TestAFailedPatchHealsItself: records first, the Node second; whatever fails
// between the two is made good by the next look.
func TestAFailedPatchHealsItself(t *testing.T) {
	s, nodes := storetest.SQLite(t), &fakeNode{node: newNode()}
	d := newReconciler(t, s, nodes)
	storetest.MustAppend(t, s, event(1, false, "79", "GPU-1"))
	boom := errors.New("the API server is away")
	crashing := newReconciler(t, s, patchFails{nodes, boom})
	if err := crashing.Handle(t.Context(), "n1"); !errors.Is(err, boom) {
		t.Fatalf("got %v", err)
	}
	if nodes.node.Spec.Unschedulable {
		t.Fatal("the node was patched")
	}
	handle(t, d)
	if !nodes.node.Spec.Unschedulable {
		t.Error("the next look does not mark the node")
	}
	storetest.MustAppend(t, s, event(2, true, ""))
	if err := crashing.Handle(t.Context(), "n1"); !errors.Is(err, boom) {
		t.Fatalf("got %v", err)
	}
	handle(t, d)
	if nodemark.HasMarks(nodes.node) || nodes.node.Spec.Unschedulable {
		t.Error("the next look does not release the node")
	}
}

type patchFails struct {
	*fakeNode
	err error
}

func (p patchFails) Patch(context.Context, *corev1.Node, func(*corev1.Node)) (*corev1.Node, error) {
	return nil, p.err
}

func TestUnknownIsNotAbsent(t *testing.T) {
	s, nodes := storetest.SQLite(t), &fakeNode{node: newNode()}
	d := newReconciler(t, s, nodes)
	f := event(1, false, "79", "GPU-1")
	storetest.MustAppend(t, s, f)
	handle(t, d)
	nodes.fail = errors.New("timeout")
	if err := d.Handle(t.Context(), "n1"); err == nil {
		t.Error("a read error settled the node")
	}
	nodes.node, nodes.fail = nil, nil
	if _, _, parked := retry.AsPark(d.Handle(t.Context(), "n1")); !parked {
		t.Error("a deleted Node with open faults is not parked")
	}
	if !record.Open(storetest.MustGet(t, s, f.ID)) {
		t.Error("the fault was closed although the machine may come back")
	}
}

func TestDryRunMarksNothing(t *testing.T) {
	s, nodes := storetest.SQLite(t), &fakeNode{node: newNode()}
	d := newReconciler(t, s, nodes)
	d.DryRun = true
	f := event(1, false, "79", "GPU-1")
	storetest.MustAppend(t, s, f)
	handle(t, d)
	got := storetest.MustGet(t, s, f.ID)
	if nodes.patches != 0 || got.Reason() != record.DryRun || got.Status.NodeQuarantined != "" || got.Status.Session != "" {
		t.Errorf("%d patches, %+v", nodes.patches, got.Status)
	}
}

func TestExpire(t *testing.T) {
	s := storetest.SQLite(t)
	d := newReconciler(t, s, &fakeNode{node: newNode()})
	clock := d.Clock.(*clocktesting.FakeClock)
	open, done := event(1, false, "79", "GPU-1"), event(2, false, "13", "GPU-2")
	done.Event.IsFatal = false
	storetest.MustAppend(t, s, open, done)
	handle(t, d)
	clock.Step(2 * time.Hour)
	for _, l := range []store.DeadLetter{
		{ID: "new", Source: "platform-connectors/gpu-7", At: clock.Now()},
		{ID: "old", Source: "platform-connectors/gpu-7", At: clock.Now().Add(-31 * 24 * time.Hour)},
		{ID: "old", Source: "fault-quarantine: killed by a record", At: clock.Now().Add(-31 * 24 * time.Hour)},
	} {
		if err := s.Dead(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Expiry().Do(t.Context()); err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]string{"platform-connectors/gpu-7": "new", "fault-quarantine: killed by a record": "old"} {
		if letters, err := s.DeadLetters(t.Context(), source); err != nil || len(letters) != 1 || letters[0].ID != want {
			t.Errorf("dead letters of %s: %+v, %v; want %s", source, letters, err, want)
		}
	}
	if _, err := s.Get(t.Context(), done.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an expired record is %v", err)
	}
	if !record.Open(storetest.MustGet(t, s, open.ID)) {
		t.Error("an open record expired")
	}
}

func TestBacklog(t *testing.T) {
	s := storetest.SQLite(t)
	d := newReconciler(t, s, &fakeNode{node: newNode()})
	storetest.MustAppend(t, s, event(1, false, "79", "GPU-1"))
	var enqueued []string
	if err := d.Backlog(t.Context(), func(key string) { enqueued = append(enqueued, key) }); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(enqueued, "n1") {
		t.Errorf("enqueued %v", enqueued)
	}
}

// TestEveryOrderOfArrival: faults and recoveries in every order of arrival,
// with clocks stepped back one hour between them, end in the same state on
// every store.
func TestEveryOrderOfArrival(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) store.Store{
		"sqlite": func(t *testing.T) store.Store { return storetest.SQLite(t) },
		"postgresql": func(t *testing.T) store.Store {
			_, dsn := pgtest.Database(t)
			return storetest.Open(t, dsn, storeopen.Options{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			for i, order := range permutations(4) {
				arrive(t, s, fmt.Sprintf("n-%d", i), order)
			}
		})
	}
}

// arrive appends one history of its own node in the given order, evaluating after
// each, and checks the end.
func arrive(t *testing.T, s store.Store, name string, order []int) {
	t.Helper()
	node := newNode()
	node.Name = name
	nodes := &fakeNode{node: node}
	d := newReconciler(t, s, nodes)
	clock := d.Clock.(*clocktesting.FakeClock)
	history := []record.Record{
		event(1, false, "79", "GPU-1", "GPU-2"), event(2, true, "", "GPU-1"), event(3, true, ""), event(4, false, "48", "GPU-3"),
	}
	for _, at := range order {
		r := history[at]
		r.Event.NodeName = name
		clock.SetTime(clock.Now().Add(-time.Hour))
		r.CreatedAt = clock.Now()
		storetest.MustAppend(t, s, r)
		if err := d.Handle(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	open, err := s.List(t.Context(), store.Query{Selector: record.OpenOfNode(name)})
	if err != nil {
		t.Fatal(err)
	}
	if len(open) != 1 || open[0].ID != history[3].ID || !nodes.node.Spec.Unschedulable || nodemark.Session(nodes.node) != open[0].Status.Session {
		t.Errorf("order %v: %d open, node %+v", order, len(open), nodes.node.Annotations)
	}
	if !strings.Contains(open[0].Status.Faults[0].Key, "GPU-3||48") {
		t.Errorf("order %v: open is %v", order, open[0].Status.Faults)
	}
}

func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var out [][]int
	for _, p := range permutations(n - 1) {
		for i := 0; i <= len(p); i++ {
			out = append(out, slices.Insert(slices.Clone(p), i, n-1))
		}
	}
	return out
}
