package reconciler_test

import (
	"testing"

	"github.com/nvidia/nvsentinel/internal/crashloop"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/store-client/consumer"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// TestDeadLettersReleaseNothing: an open fault that is dead-lettered is one that
// only the Node knows, and a recovery that would end it ends nothing. A try of it
// changes nothing either.
func TestDeadLettersReleaseNothing(t *testing.T) {
	s, nodes := storetest.SQLite(t), &fakeNode{node: newNode()}
	d := newReconciler(t, s, nodes)
	f := event(1, false, "79", "GPU-1")
	storetest.MustAppend(t, s, f)
	handle(t, d)
	session := nodemark.Session(nodes.node)
	if session == "" || !nodes.node.Spec.Unschedulable {
		t.Fatal("the node is not in quarantine")
	}
	before := storetest.MustGet(t, s, f.ID)
	d.Try(t.Context(), before)
	register := consumer.OpenCrashMemory(s, "fault-quarantine", d.Clock)
	if err := register.MoveToDeadLetters(t.Context(), crashloop.Work{Key: "n1", Record: f.ID}); err != nil {
		t.Fatal(err)
	}
	d.Store = register.WithoutDeadLetters()
	for _, healthy := range []bool{false, true} {
		if healthy {
			storetest.MustAppend(t, s, event(2, true, ""))
		}
		if err := d.Handle(t.Context(), "n1"); err != nil {
			if _, _, parked := retry.AsPark(err); !parked {
				t.Fatal(err)
			}
		}
		if nodemark.Session(nodes.node) != session || !nodes.node.Spec.Unschedulable {
			t.Errorf("healthy %v: the node was released", healthy)
		}
		if after := storetest.MustGet(t, s, f.ID); after.Revision != before.Revision {
			t.Errorf("healthy %v: the record that is set aside was written: %+v", healthy, after.Status)
		}
	}
}
