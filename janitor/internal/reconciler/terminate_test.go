package reconciler

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/janitor/internal/provider"
)

// The Node is another machine's when it is to be removed: it stays.
func TestNodeReplacedRightBeforeItsRemoval(t *testing.T) {
	w := newWorld(t)
	w.turn(TerminateNode())
	spec := localcluster.NodeSpec{Name: "n", ProviderID: "cloud://1"}
	w.addNode(spec)
	w.create("r", "n", "")
	w.mustReconcile("r")
	w.wantSignals(1)
	w.plugin.state = provider.Gone
	w.at("janitor/asked", func() {
		if err := w.cluster.DeleteNode(t.Context(), w.prefix+"n"); err != nil {
			t.Fatal(err)
		}
		spec.ProviderID = "cloud://2"
		w.addNode(spec)
	})
	result, _, err := w.reconcile("r")
	if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > time.Second {
		t.Fatalf("a lost race: again in %s, %v; want it soon", result.RequeueAfter, err)
	}
	w.mustReconcile("r")
	if got := w.node("n").Spec.ProviderID; got != "cloud://2" {
		t.Errorf("the node is %s, want cloud://2", got)
	}
	goal := meta.FindStatusCondition(w.object("r").Progress().Conditions, v1alpha1.ConditionNodeTerminated)
	if goal == nil || goal.Status != metav1.ConditionTrue || goal.Reason != v1alpha1.ReasonReplaced {
		t.Errorf("NodeTerminated is %v, want True/Replaced", goal)
	}
}

// A Node that changed since it was looked at is looked at again.
func TestNodeChangesRightBeforeItsRemoval(t *testing.T) {
	w := newWorld(t)
	w.turn(TerminateNode())
	w.addNode(localcluster.NodeSpec{Name: "n"})
	w.create("r", "n", "")
	w.mustReconcile("r")
	w.plugin.state = provider.Gone
	w.at("janitor/asked", func() { w.annotate("n", map[string]any{"somebody": "was here"}) })
	result, _, err := w.reconcile("r")
	if err != nil || result.RequeueAfter <= 0 {
		t.Fatalf("a lost race: again in %s, %v; want it soon", result.RequeueAfter, err)
	}
	if w.node("n") == nil || w.object("r").Progress().CompletionTime != nil {
		t.Error("the node was removed in another state than the one that was looked at")
	}
	w.mustReconcile("r")
	if w.object("r").Progress().CompletionTime == nil {
		t.Error("the second look did not end it")
	}
}

// A reboot and a termination race for one node: the loser of the claim waits,
// whichever kind it is.
func TestKindsRaceForTheClaim(t *testing.T) {
	for name, kinds := range map[string][2]Kind{
		"the termination is quicker": {RebootNode(), TerminateNode()},
		"the reboot is quicker":      {TerminateNode(), RebootNode()},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.addNode(localcluster.NodeSpec{Name: "n"})
			w.turn(kinds[1])
			winner := w.create("winner", "n", "")
			w.turn(kinds[0])
			w.create("loser", "n", "")
			slow := w.janitor
			w.at("janitor/intent-written", func() {
				w.turn(kinds[1])
				w.mustReconcile("winner")
				w.kind, w.janitor = kinds[0], slow
			})
			w.mustReconcile("loser")
			w.mustReconcile("loser")
			w.wantSignals(1)
			if got := w.node("n").Annotations[nodemark.RepairAnnotation]; got != string(winner.GetUID()) {
				t.Errorf("the node is claimed by %s, want %s", got, winner.GetUID())
			}
		})
	}
}

// What a NodeHealthCheck reads: Processing and Succeeded on every object, and,
// before the signal of a termination, that the Node will not come back.
func TestConditionsOfMedik8s(t *testing.T) {
	for _, kind := range []Kind{RebootNode(), TerminateNode()} {
		t.Run(kind.Name, func(t *testing.T) {
			w := newWorld(t)
			w.turn(kind)
			w.addNode(localcluster.NodeSpec{Name: "n", BootID: "b1"})
			w.create("r", "n", "")
			want := func(kind string, status metav1.ConditionStatus) {
				t.Helper()
				if !meta.IsStatusConditionPresentAndEqual(w.object("r").Progress().Conditions, kind, status) {
					t.Errorf("conditions are %v, want %s=%s", w.object("r").Progress().Conditions, kind, status)
				}
			}
			w.plugin.onSignal = func(provider.Signal) {
				want(v1alpha1.ConditionProcessing, metav1.ConditionTrue)
				want(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown)
				if kind.forGood {
					want(v1alpha1.ConditionPermanentNodeDeletionExpected, metav1.ConditionTrue)
				}
			}
			w.mustReconcile("r")
			w.wantSignals(1)
			if kind.forGood {
				w.plugin.state = provider.Gone
			} else {
				w.boot("n", "b2")
			}
			w.mustReconcile("r")
			want(v1alpha1.ConditionProcessing, metav1.ConditionFalse)
			want(v1alpha1.ConditionSucceeded, metav1.ConditionTrue)

			w.addNode(localcluster.NodeSpec{Name: "m", BootID: "b1"})
			w.create("refused", "m", "")
			w.plugin.onSignal, w.plugin.answers = nil, []error{failure("Refused")}
			w.mustReconcile("refused")
			conditions := w.object("refused").Progress().Conditions
			if !meta.IsStatusConditionFalse(conditions, v1alpha1.ConditionSucceeded) || meta.FindStatusCondition(conditions, v1alpha1.ConditionPermanentNodeDeletionExpected) != nil {
				t.Errorf("refused, but conditions are %v", conditions)
			}
		})
	}
}
