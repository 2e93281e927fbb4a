package reconciler_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/internal/reconciler"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

const driver = "system:serviceaccount:gpu-operator:nvidia-driver"

// uncordon lifts a Node's cordon, as the API server notes it; by "" it does not.
func uncordon(node *corev1.Node, by string) {
	node.Spec.Unschedulable = false
	nodemark.Annotate(node, nodemark.LiftedByAnnotation, by)
}

// watched is one node of the test below, and what was seen of it.
type watched struct {
	name, session, by string
	// acts reports whether the bystander uncordons a cordoned node in this second.
	acts     func(second int) bool
	again    time.Time // when the reconciler asked to see the node again
	restored []time.Time
}

// TestBystandersReleaseNothing: of 200 sessions, whose nodes somebody uncordons at each
// boot, at once, or every 10 seconds, for ten minutes and through a restart, none ends,
// and no node is cordoned again more often than once within a minute. Then each ends by
// its recovery.
func TestBystandersReleaseNothing(t *testing.T) {
	const sessions, seconds = 200, 600
	kinds := []func(int) bool{
		func(second int) bool { return second%120 == 30 },             // at each boot
		func(int) bool { return true },                                // at once
		func(second int) bool { return second > 0 && second%10 == 0 }, // every 10 seconds
	}
	// A service account, somebody whom the API server does not name, and a person while a
	// repair claims the node.
	users := []string{driver, "", "alice"}
	names := make([]string, sessions)
	for i := range names {
		names[i] = fmt.Sprintf("b-%03d", i)
	}
	nodes, s := newRacks(names...), storetest.SQLite(t)
	d := newReconciler(t, s, nodes)
	clock := d.Clock.(*clocktesting.FakeClock)
	var all []*watched
	for i, name := range names {
		f := faultOf(name)
		storetest.MustAppend(t, s, f)
		if err := d.Handle(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		w := &watched{name: name, session: f.ID, by: users[i%len(users)], acts: kinds[i/len(users)%len(kinds)]}
		if w.by == "alice" {
			nodemark.SetClaim(nodes.nodes[name].node, "uid")
		}
		all = append(all, w)
	}
	lifts, total := 0, 0.0
	for second := range seconds {
		if second == seconds/2 { // started again
			total += restoredTotal(t, d)
			d = newReconciler(t, s, nodes)
			d.Clock = clock
		}
		for _, w := range all {
			b := nodes.nodes[w.name]
			due := !w.again.IsZero() && !clock.Now().Before(w.again)
			if b.node.Spec.Unschedulable && w.acts(second) {
				uncordon(b.node, w.by)
				lifts++
				due = true
			}
			if due {
				w.handle(t, d, b, clock.Now())
			}
		}
		clock.Step(time.Second)
	}
	released, most, restored := 0, 0, 0
	clock.Step(marks.RestoreEvery)
	for _, w := range all {
		b := nodes.nodes[w.name]
		w.handle(t, d, b, clock.Now()) // what is still lifted
		most, restored = max(most, w.mostWithinAMinute()), restored+len(w.restored)
		r := storetest.MustGet(t, s, w.session)
		if r.Status.NodeQuarantined != record.Quarantined || !record.Open(r) || nodemark.Session(b.node) != w.session || !b.node.Spec.Unschedulable {
			released++
			t.Errorf("%s: the record is %q, the Node %v", w.name, r.Status.NodeQuarantined, b.node.Annotations)
		}
		if got := nodemark.Read(b.node).Restored.Count; got != len(w.restored) || got == 0 {
			t.Errorf("%s was restored %d times, and says %d", w.name, len(w.restored), got)
		}
	}
	if total += restoredTotal(t, d); int(total) != restored {
		t.Errorf("%v restored marks are counted, %d were", total, restored)
	}
	t.Logf("%d sessions, %d uncordons: %d released without evidence, %d restored, at most %d of a node within a minute", sessions, lifts, released, restored, most)
	if released != 0 || most != 1 || restored < sessions {
		t.Errorf("released %d, at most %d within a minute, restored %d", released, most, restored)
	}
	recoverAll(t, d, nodes, all)
}

// handle handles a node, and notes whether its marks were restored.
func (w *watched) handle(t *testing.T, d *reconciler.Reconciler, b *fakeNode, now time.Time) {
	t.Helper()
	was := b.node.Spec.Unschedulable
	after, _, parked := retry.AsPark(d.Handle(t.Context(), w.name))
	w.again = time.Time{}
	if parked {
		w.again = now.Add(after)
	}
	if b.node.Spec.Unschedulable && !was {
		w.restored = append(w.restored, now)
	} else if !b.node.Spec.Unschedulable && !parked {
		t.Fatalf("%s is uncordoned, and nobody looks again", w.name)
	}
}

func (w *watched) mostWithinAMinute() int {
	most := 0
	for i, at := range w.restored {
		n := slices.IndexFunc(w.restored[i:], func(x time.Time) bool { return x.Sub(at) >= time.Minute })
		if n < 0 {
			n = len(w.restored) - i
		}
		most = max(most, n)
	}
	return most
}

// recoverAll ends every session by its recovery.
func recoverAll(t *testing.T, d *reconciler.Reconciler, nodes *racks, all []*watched) {
	t.Helper()
	for _, w := range all {
		nodemark.SetClaim(nodes.nodes[w.name].node, "")
		r := event(2, true, "", "GPU-1")
		r.Event.NodeName = w.name
		storetest.MustAppend(t, d.Store, r)
		if err := d.Handle(t.Context(), w.name); err != nil {
			t.Fatal(err)
		}
		got := storetest.MustGet(t, d.Store, w.session)
		if nodemark.HasMarks(nodes.nodes[w.name].node) || got.Status.Faults[0].ClearedBy != r.ID {
			t.Errorf("%s after its recovery: cleared by %q, %v", w.name, got.Status.Faults[0].ClearedBy, nodes.nodes[w.name].node.Annotations)
		}
	}
}

func restoredTotal(t *testing.T, d *reconciler.Reconciler) (sum float64) {
	t.Helper()
	for _, writer := range []string{"service account", "unknown", "user", "system"} {
		sum += testutil.ToFloat64(d.Metrics.Restored.WithLabelValues("uncordon", writer))
	}
	return sum
}

// TestARestoredMarkIsReported by an Event: who lifted it, why that is no release, and what
// would be one; after some times it names the way out. Of very many, few are reported.
func TestARestoredMarkIsReported(t *testing.T) {
	d, nodes, _ := quarantined(t)
	clock := d.Clock.(*clocktesting.FakeClock)
	messages := &eventRecorder{fakeNode: nodes}
	d.Nodes = messages
	for range 70 {
		uncordon(nodes.node, driver)
		handle(t, d)
		clock.Step(time.Minute)
	}
	if len(messages.texts) != 6 { // 1 to 5, and the 60th
		t.Fatalf("%d Events: %q", len(messages.texts), messages.texts)
	}
	for _, want := range []string{driver + " uncordoned the node", "not a release", "only a user can release a node", "nvsentinel release n1"} {
		if !strings.Contains(messages.texts[0], want) {
			t.Errorf("the first Event does not say %q: %s", want, messages.texts[0])
		}
	}
	if contested := testutil.ToFloat64(d.Metrics.Contested); contested != 1 || !strings.Contains(messages.texts[4], "use a taint") || strings.Contains(messages.texts[3], "use a taint") {
		t.Errorf("%v nodes are contested, and the fifth Event says %s", contested, messages.texts[4])
	}
	if got := testutil.ToFloat64(d.Metrics.Restored.WithLabelValues("uncordon", "service account")); got != 70 {
		t.Errorf("%v restored marks are counted", got)
	}
	key, value := nodemark.Request{Session: nodemark.Session(nodes.node), By: "alice", Reason: "it is well"}.Annotation()
	nodemark.Annotate(nodes.node, key, value)
	handle(t, d)
	if last := messages.texts[len(messages.texts)-1]; nodemark.HasMarks(nodes.node) || !strings.Contains(last, "alice released the node: it is well") {
		t.Errorf("after the request: %v, %s", nodes.node.Annotations, last)
	}
	if got := testutil.ToFloat64(d.Metrics.Contested) + testutil.ToFloat64(d.Metrics.Requested); got != 1 {
		t.Errorf("contested and requested: %v", got)
	}
}

// eventRecorder keeps the texts of Events.
type eventRecorder struct {
	*fakeNode
	texts []string
}

func (er *eventRecorder) Note(ctx context.Context, node *corev1.Node, e reconciler.Event) {
	er.fakeNode.Note(ctx, node, e)
	er.texts = append(er.texts, e.Message)
}
