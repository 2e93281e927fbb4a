package reconciler

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/janitor/internal/provider"
)

// at runs what once when the janitor comes to point.
func (w *world) at(point string, what func()) {
	before := w.janitor.Here
	w.janitor.Here = func(p string) {
		before(p)
		if p == point {
			w.janitor.Here = before
			what()
		}
	}
}

func (w *world) mustReconcile(name string) {
	w.t.Helper()
	if _, _, err := w.reconcile(name); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) wantSignals(want int) {
	w.t.Helper()
	if got := w.plugin.count(); got != want {
		w.t.Errorf("%d signals were sent, want %d", got, want)
	}
}

// The node is released between the look at it and the claim: the claim's
// resourceVersion fails, and the second look sees the release.
func TestReleaseRightBeforeTheClaim(t *testing.T) {
	w := newWorld(t)
	w.addNode(localcluster.NodeSpec{Name: "n"})
	w.quarantine("n", "s1")
	w.create("r", "n", "s1")
	w.at("janitor/intent-written", func() {
		w.annotate("n", map[string]any{nodemark.SessionAnnotation: nil})
		w.cordon("n", false)
	})
	result, _, err := w.reconcile("r")
	if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > time.Second {
		t.Fatalf("a lost race: again in %s, %v; want it soon", result.RequeueAfter, err)
	}
	if claim := w.node("n").Annotations[nodemark.RepairAnnotation]; claim != "" {
		t.Errorf("a released node is claimed by %s", claim)
	}
	w.mustReconcile("r")
	w.wantSignals(0)
	sent := meta.FindStatusCondition(w.object("r").Progress().Conditions, v1alpha1.ConditionSignalSent)
	if sent == nil || sent.Status != "False" || sent.Reason != v1alpha1.ReasonSessionOver {
		t.Errorf("SignalSent is %v, want False/SessionOver", sent)
	}
}

// The object is deleted between the claim and the signal: the note of the
// signal fails, the claim is dropped and nothing is sent.
func TestDeletionRightBeforeTheSignal(t *testing.T) {
	w := newWorld(t)
	w.addNode(localcluster.NodeSpec{Name: "n"})
	w.create("r", "n", "")
	w.at("janitor/claimed", func() { w.delete("r") })
	w.mustReconcile("r")
	w.wantSignals(0)
	w.mustReconcile("r")
	w.wantSignals(0)
	if w.object("r") != nil {
		t.Error("the object is still there")
	}
	if claim := w.node("n").Annotations[nodemark.RepairAnnotation]; claim != "" {
		t.Errorf("the node is still claimed by %s", claim)
	}
}

// Two janitors that both think they lead act on one object: one signal.
func TestTwoJanitorsSendOneSignal(t *testing.T) {
	for _, point := range []string{"janitor/observed", "janitor/intent-written", "janitor/claimed"} {
		t.Run(point, func(t *testing.T) {
			w := newWorld(t)
			w.addNode(localcluster.NodeSpec{Name: "n"})
			w.quarantine("n", "s1")
			w.create("r", "n", "s1")
			first := w.janitor
			w.at(point, func() {
				w.restart()
				w.mustReconcile("r")
				w.wantSignals(1)
				w.janitor = first
			})
			w.mustReconcile("r")
			w.mustReconcile("r")
			w.wantSignals(1)
			if got := w.object("r").Progress().Signals; got != 1 {
				t.Errorf("the object counts %d signals, want 1", got)
			}
		})
	}
}

// Two objects race for one node: the loser of the claim waits.
func TestTwoObjectsRaceForTheClaim(t *testing.T) {
	w := newWorld(t)
	w.addNode(localcluster.NodeSpec{Name: "n"})
	w.create("first", "n", "")
	w.create("second", "n", "")
	w.at("janitor/intent-written", func() { w.mustReconcile("second") })
	w.mustReconcile("first")
	w.mustReconcile("first")
	w.wantSignals(1)
	if got, want := w.node("n").Annotations[nodemark.RepairAnnotation], string(w.object("second").GetUID()); got != want {
		t.Errorf("the node is claimed by %s, want %s", got, want)
	}
}

// What is needed after a crash is at the API server before the signal leaves.
func TestIntentIsStoredBeforeTheSignal(t *testing.T) {
	w := newWorld(t)
	w.addNode(localcluster.NodeSpec{Name: "n", BootID: "b1"})
	w.quarantine("n", "s1")
	uid := string(w.create("r", "n", "s1").GetUID())
	w.plugin.onSignal = func(s provider.Signal) {
		object := w.object("r")
		st := object.Progress()
		if st.IdempotencyKey != s.Key || s.Key != uid || *object.BootID() != "b1" || st.Machine == nil || st.SignalSentAt == nil || st.Signals != 1 {
			t.Errorf("at the signal with key %s the stored status is %+v", s.Key, st)
		}
		if claim := w.node("n").Annotations[nodemark.RepairAnnotation]; claim != uid {
			t.Errorf("at the signal the node is claimed by %q", claim)
		}
	}
	w.mustReconcile("r")
	w.wantSignals(1)
}
