package reconciler_test

import (
	"database/sql"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/internal/reconciler"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// unknown handles a node whose session the store does not know.
func unknown(t *testing.T, d *reconciler.Reconciler, nodes *fakeNode) {
	t.Helper()
	if _, why, parked := retry.AsPark(d.Handle(t.Context(), "n1")); !parked || why != "SessionUnknown" {
		t.Errorf("parked %v: %q", parked, why)
	}
	if n := nodes.node; !n.Spec.Unschedulable || nodemark.Session(n) == "" || n.Annotations[nodemark.UnknownAnnotation] == "" {
		t.Errorf("the node is released, or it is not said: %v, %v", n.Spec, n.Annotations)
	}
	if !slices.Contains(nodes.notes, "SessionUnknown") {
		t.Errorf("told only %v", nodes.notes)
	}
}

// quarantined is a node in quarantine for one fault, with the reconciler that did it.
func quarantined(t *testing.T) (*reconciler.Reconciler, *fakeNode, record.Record) {
	t.Helper()
	s, nodes := storetest.SQLite(t), &fakeNode{node: newNode()}
	d, f := newReconciler(t, s, nodes), event(1, false, "79", "GPU-1")
	f.Event.Metadata = map[string]string{record.MetadataSeq: "1", record.MetadataSeqEpoch: "e", record.MetadataSeqRuns: "run"}
	storetest.MustAppend(t, s, f)
	handle(t, d)
	return d, nodes, f
}

// TestAnEmptiedStoreReleasesNothing: the store has nothing of the session; the
// node stays as it is until its fault is stored again and recovers.
func TestAnEmptiedStoreReleasesNothing(t *testing.T) {
	d, nodes, f := quarantined(t)
	d.Store = storetest.SQLite(t)
	unknown(t, d, nodes)
	storetest.MustAppend(t, d.Store, event(2, false, "48", "GPU-2"))
	unknown(t, d, nodes)
	if active := marks.Active(nodes.node); len(active) != 2 || active[0].ID != f.ID {
		t.Errorf("the node lists %v", active)
	}
	storetest.MustAppend(t, d.Store, f)
	handle(t, d)
	if nodes.node.Annotations[nodemark.UnknownAnnotation] != "" || !nodes.node.Spec.Unschedulable {
		t.Errorf("the fault is stored again: %v", nodes.node.Annotations)
	}
	storetest.MustAppend(t, d.Store, event(3, true, ""))
	handle(t, d)
	if nodes.node.Spec.Unschedulable || nodemark.HasMarks(nodes.node) {
		t.Errorf("not released: %v", nodes.node.Annotations)
	}
}

// TestAForgottenSessionKeepsItsPlace: the service starts again on a store that was
// emptied, with capacity for one node. The fault of the node that is out of service
// already is stored again and goes on; another node's waits.
func TestAForgottenSessionKeepsItsPlace(t *testing.T) {
	nodes := newRacks("n1", "n2")
	before, mine, other := storetest.SQLite(t), faultOf("n1"), faultOf("n2")
	storetest.MustAppend(t, before, mine)
	d := replica(t, before, nodes)
	backlog(t, d)
	if err := d.Handle(t.Context(), "n1"); err != nil || clean(nodes, "n1") {
		t.Fatalf("not in quarantine: %v", err)
	}
	emptied := storetest.SQLite(t)
	d = replica(t, emptied, nodes)
	backlog(t, d)
	if _, why, _ := retry.AsPark(d.Handle(t.Context(), "n1")); why != "SessionUnknown" {
		t.Errorf("waits for %q", why)
	}
	storetest.MustAppend(t, emptied, mine, other)
	_, why, parked := retry.AsPark(d.Handle(t.Context(), "n2"))
	if !parked || why != string(record.Held) || !clean(nodes, "n2") {
		t.Errorf("the other node waits for %q: %v", why, parked)
	}
	if err := d.Handle(t.Context(), "n1"); err != nil {
		t.Errorf("the fault that is stored again: %v", err)
	}
	if r := storetest.MustGet(t, emptied, mine.ID); r.Reason() != record.Matched || !nodes.nodes["n1"].node.Spec.Unschedulable {
		t.Errorf("the fault that is stored again: %+v", r.Status.QuarantineVerdict)
	}
}

// TestAnUnreadableFaultIsNoProof: the document of a fault that the Node names has
// become unreadable. The Node stays out of service, and other faults of it are
// evaluated.
func TestAnUnreadableFaultIsNoProof(t *testing.T) {
	nodes, dsn := newRacks("n1"), storetest.SQLiteDSN(t)
	s := storetest.Open(t, dsn, storeopen.Options{})
	unreadable, fresh := faultOf("n1"), event(2, false, "48", "GPU-2")
	storetest.MustAppend(t, s, unreadable)
	d := replica(t, s, nodes)
	backlog(t, d)
	if err := d.Handle(t.Context(), "n1"); err != nil || clean(nodes, "n1") {
		t.Fatalf("not in quarantine: %v", err)
	}
	raw, err := sql.Open("sqlite", strings.TrimPrefix(dsn, "sqlite://"))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if _, err := raw.ExecContext(t.Context(), "UPDATE health_events SET doc = '{\"revision\": \"none\"}' WHERE id = $1", unreadable.ID); err != nil {
		t.Fatal(err)
	}
	storetest.MustAppend(t, s, fresh)
	if _, why, _ := retry.AsPark(d.Handle(t.Context(), "n1")); why != "SessionUnknown" || clean(nodes, "n1") {
		t.Errorf("waits for %q, out of service: %t", why, !clean(nodes, "n1"))
	}
	if r := storetest.MustGet(t, s, fresh.ID); r.Reason() != record.Matched {
		t.Errorf("the other fault: %+v", r.Status.QuarantineVerdict)
	}
}

// TestALaterRecoveryIsProof: the publisher itself reports that what only the Node
// knows is over, in its own counting.
func TestALaterRecoveryIsProof(t *testing.T) {
	d, nodes, _ := quarantined(t)
	d.Store = storetest.SQLite(t)
	older := event(1, true, "")
	older.SeqEpoch = "another outbox"
	storetest.MustAppend(t, d.Store, older)
	unknown(t, d, nodes)
	storetest.MustAppend(t, d.Store, event(2, true, "", "GPU-1"))
	handle(t, d)
	if nodes.node.Spec.Unschedulable || nodemark.HasMarks(nodes.node) {
		t.Errorf("not released: %v", nodes.node.Annotations)
	}
}

// TestAPersonReleasesAnUnknownSession confirms that the node is well.
func TestAPersonReleasesAnUnknownSession(t *testing.T) {
	d, nodes, _ := quarantined(t)
	d.Store = storetest.SQLite(t)
	unknown(t, d, nodes)
	uncordon(nodes.node, "alice")
	handle(t, d)
	if nodemark.HasMarks(nodes.node) || nodes.node.Annotations[nodemark.QuarantinedNodeUncordonedManually] != nodemark.True {
		t.Errorf("not released: %v", nodes.node.Annotations)
	}
}

// TestReevaluatedFaultIsNoEvidence: the store holds the session's record in the
// state before its verdict, and now no rule matches it.
func TestReevaluatedFaultIsNoEvidence(t *testing.T) {
	d, nodes, f := quarantined(t)
	d.Store, d.DryRun = storetest.SQLite(t), true
	storetest.MustAppend(t, d.Store, f)
	unknown(t, d, nodes)
	unknown(t, d, nodes)
	if r := storetest.MustGet(t, d.Store, f.ID); r.Reason() != record.DryRun {
		t.Errorf("judged %s", r.Reason())
	}
}

// TestOlderStoreQuarantinesNoNode: the store holds a fault as open for which
// the node was marked and has been released since; the node's own check proves
// it. Without a word of it the node is left as it is.
func TestOlderStoreQuarantinesNoNode(t *testing.T) {
	for name, checks := range map[string][]corev1.NodeCondition{
		"healthy": {{Type: "SysLogsXIDError", Status: corev1.ConditionFalse}}, "silent": nil,
	} {
		t.Run(name, func(t *testing.T) {
			s, nodes := storetest.SQLite(t), &fakeNode{node: newNode()}
			d, f := newReconciler(t, s, nodes), event(1, false, "79", "GPU-1")
			f.Node.UID, f.Event.Metadata = "u1", map[string]string{record.MetadataBootID: "b1"}
			storetest.MustAppend(t, s, f)
			handle(t, d)
			patches := nodes.patches
			nodes.node = newNode() // as after its release
			nodes.node.Status.Conditions = checks
			for i := range nodes.node.Status.Conditions {
				nodes.node.Status.Conditions[i].LastTransitionTime.Time = d.Clock.Now().Add(1e9)
			}
			_, why, _ := retry.AsPark(d.Handle(t.Context(), "n1"))
			r := storetest.MustGet(t, s, f.ID)
			if nodes.patches != patches || record.Open(r) != (name == "silent") || (why == "SessionUnknown") != (name == "silent") {
				t.Errorf("%d patches, %q, the fault is %+v", nodes.patches-patches, why, r.Status.Faults)
			}
		})
	}
}
