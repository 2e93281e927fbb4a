package reconciler_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// TestAnotherNodesRecordProvesNothing: the store is emptied, and another node stores a
// fault of its own, and the end of it, under the id that the broken node displays. The
// node stays in quarantine as one that the store does not know; its own fault is
// stored all the same, and its own recovery releases it.
func TestAnotherNodesRecordProvesNothing(t *testing.T) {
	nodes := newRacks("n1", "n2")
	s := storetest.SQLite(t)
	d := newReconciler(t, s, nodes)
	handle := func(name string) {
		t.Helper()
		if err := d.Handle(t.Context(), name); err != nil {
			t.Logf("node %s: %v; %v", name, err, nodes.nodes[name].node.Annotations)
		}
	}
	state := func() (held, unknown bool) {
		n := nodes.nodes["n1"].node
		return n.Spec.Unschedulable && nodemark.HasMarks(n), n.Annotations[nodemark.UnknownAnnotation] != ""
	}
	expect := func(when string, wantHeld, wantUnknown bool) {
		t.Helper()
		if held, unknown := state(); held != wantHeld || unknown != wantUnknown {
			t.Fatalf("%s: n1 is held: %t, unknown to the store: %t; notes %v", when, held, unknown, nodes.nodes["n1"].notes)
		}
	}
	own := faultOf("n1")
	storetest.MustAppend(t, s, own)
	handle("n1")
	expect("after its fault", true, false)

	s = storetest.SQLite(t) // emptied
	d.Store, d.Reported = s, s
	taken, back := faultOf("n2"), event(2, true, "")
	taken.ID, taken.Event.ID, taken.SeqEpoch = own.ID, own.ID, "x"
	back.Event.NodeName, back.SeqEpoch = "n2", "x"
	storetest.MustAppend(t, s, taken)
	handle("n2")
	handle("n1")
	expect("while the other node's fault is open", true, true)
	storetest.MustAppend(t, s, back)
	handle("n2")
	handle("n1")
	expect("after the end of the other node's fault", true, true)
	if nodemark.HasMarks(nodes.nodes["n2"].node) {
		t.Error("the other node's own recovery has not released it")
	}

	for _, want := range []store.AppendResult{store.Appended, store.Duplicate} { // its connector reports again
		if got, err := s.Append(t.Context(), []record.Record{own}); err != nil || !cmp.Equal(got, []store.AppendResult{want}) {
			t.Fatalf("n1's own fault again: %v, %v; want %v", got, err, want)
		}
	}
	handle("n1")
	handle("n1")
	expect("after its own fault is stored again", true, false)

	s = storetest.SQLite(t) // emptied once more, and nobody takes the id
	d.Store, d.Reported = s, s
	handle("n1")
	expect("after the store was emptied once more", true, true)
	storetest.MustAppend(t, s, own)
	handle("n1")
	handle("n1")
	expect("after its own fault is stored under its id", true, false)
	storetest.MustAppend(t, s, event(2, true, ""))
	handle("n1")
	expect("after its own recovery", false, false)
	released := 0
	for _, note := range nodes.nodes["n1"].notes {
		if strings.HasPrefix(note, "NodeReleased") {
			released++
		}
	}
	if released != 1 {
		t.Errorf("n1 was told to be released %d times: %v", released, nodes.nodes["n1"].notes)
	}
}
