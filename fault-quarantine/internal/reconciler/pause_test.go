package reconciler_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/pause"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// pausedSwitch is an emergency stop that somebody has switched on.
func pausedSwitch(t *testing.T) *pause.Switch {
	t.Helper()
	on := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: pause.DefaultNamespace, Name: pause.Name}}
	b := pause.New(fake.NewClientset(on), "", slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = b.Run(ctx) })
	t.Cleanup(func() { cancel(); run.Wait() })
	testkit.Until(t, time.Minute, func() bool { return !b.Unread() })
	return b
}

// TestPauseStopsCordons: no session is opened and no mark added while the emergency
// stop is on; a release goes on, and what was held comes after it.
func TestPauseStopsCordons(t *testing.T) {
	s, nodes := storetest.SQLite(t), &fakeNode{node: newNode()}
	d := newReconciler(t, s, nodes)
	f := event(1, false, "79", "GPU-1")
	storetest.MustAppend(t, s, f)
	d.Pause = pause.New(fake.NewClientset(), "", slog.New(slog.DiscardHandler))
	if _, _, waits := retry.AsWait(d.Handle(t.Context(), "n1")); !waits || storetest.MustGet(t, s, f.ID).Evaluated() {
		t.Errorf("waits for the brake to be read %v; verdict %s", waits, storetest.MustGet(t, s, f.ID).Reason())
	}
	on := pausedSwitch(t)
	d.Pause = on
	if _, _, parked := retry.AsPark(d.Handle(t.Context(), "n1")); !parked || nodes.patches > 0 {
		t.Errorf("parked %v, %d patches", parked, nodes.patches)
	}
	if r := storetest.MustGet(t, s, f.ID); r.Reason() != record.Held || !strings.Contains(r.Status.QuarantineVerdict.Detail, "emergency stop") {
		t.Errorf("%s: %+v", r.Reason(), r.Status.QuarantineVerdict)
	}
	d.Pause = nil
	boom := errors.New("the API server is away")
	crashing := newReconciler(t, s, patchFails{nodes, boom})
	if err := crashing.Handle(t.Context(), "n1"); !errors.Is(err, boom) {
		t.Fatal(err)
	}
	d.Pause = on // the verdict is written, the mark is not
	if _, why, parked := retry.AsPark(d.Handle(t.Context(), "n1")); !parked || nodes.patches > 0 || !strings.Contains(why, "emergency stop") {
		t.Errorf("parked %v: %q, %d patches", parked, why, nodes.patches)
	}
	d.Pause = nil
	handle(t, d)
	if !nodes.node.Spec.Unschedulable {
		t.Error("not marked after the brake was let go")
	}
	d.Pause = on
	storetest.MustAppend(t, s, event(2, true, ""))
	handle(t, d)
	if nodes.node.Spec.Unschedulable {
		t.Error("the brake holds a release")
	}
}

// listFails is a store whose first lists fail.
type listFails struct {
	store.Store
	times int
}

func (l *listFails) List(ctx context.Context, q store.Query) ([]record.Record, error) {
	if l.times--; l.times >= 0 {
		return nil, errors.New("the store is away")
	}
	return l.Store.List(ctx, q)
}

// TestResumeIsNoticedAfterAnOutage: a store that fails just then strands nobody.
func TestResumeIsNoticedAfterAnOutage(t *testing.T) {
	s := storetest.SQLite(t)
	const outage = 10
	d := newReconciler(t, &listFails{s, outage}, &fakeNode{node: newNode()})
	storetest.MustAppend(t, s, event(1, false, "79", "GPU-1"))
	on := pause.New(fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: pause.DefaultNamespace, Name: pause.Name}}), "", slog.New(slog.DiscardHandler))
	source := d.PauseSource(on) // before it runs: its first reading is a change
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = on.Run(ctx) })
	t.Cleanup(func() { cancel(); run.Wait() })
	testkit.Until(t, time.Minute, func() bool { return !on.Unread() })
	limited, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	for range outage { // more often than the emergency stop has changed
		if err := source(limited, func(string) {}); err == nil {
			t.Fatal("the change was forgotten in the outage")
		}
	}
	held := newReconciler(t, s, &fakeNode{node: newNode()})
	held.Pause = on
	if _, _, parked := retry.AsPark(held.Handle(t.Context(), "n1")); !parked {
		t.Fatal("not held by the brake")
	}
	enqueued := make(chan string, 8)
	run.Go(func() { _ = source(ctx, func(node string) { enqueued <- node }) })
	if node := <-enqueued; node != "n1" {
		t.Errorf("enqueued %s", node)
	}
}
