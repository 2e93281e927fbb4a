package reconciler

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// TestReservationFacts: the Node only for the records that it was read with, and
// where the mark has something to write; the absence of the object only of the name
// that was reserved; and of any other step nothing.
func TestReservationFacts(t *testing.T) {
	reserved := record.Record{ID: "r", Status: record.Status{Remediation: &record.Remediation{Attempts: []record.Attempt{{Name: "o"}}}}}
	read := func(state nodemark.State) *facts {
		return &facts{
			node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{nodemark.StateLabel: string(state)}}},
			view: decision.View{Records: []record.Record{reserved, {ID: "s"}}},
		}
	}
	f := read(nodemark.DrainSucceeded)
	if reserve(f, decision.Step{Reason: decision.Escalate}) != nil {
		t.Error("a step that reserves no name leaves a reservation")
	}
	if reserve(&facts{node: f.node}, decision.Step{Reason: decision.Reserved}) != nil {
		t.Error("a name whose stamp was lost leaves a reservation")
	}
	r := reserve(f, decision.Step{Reason: decision.Reserved})
	if r.nodeOf([]record.Record{reserved}) != f.node || r.nodeOf([]record.Record{reserved, {ID: "new"}}) != nil {
		t.Error("the Node is not known for its records, or for others")
	}
	if !r.names(record.Attempt{Name: "o"}) || r.names(record.Attempt{Name: "o", UID: "u"}) || r.names(record.Attempt{Name: "other"}) {
		t.Error("the object is not absent under its name alone")
	}
	if marked := reserve(read(nodemark.Remediating), decision.Step{Reason: decision.Reserved}); marked.nodeOf(nil) != nil || !marked.names(record.Attempt{Name: "o"}) {
		t.Error("a Node that the mark may not change is known")
	}
	if r = nil; r.nodeOf(nil) != nil || r.names(record.Attempt{Name: "o"}) {
		t.Error("no reservation knows something")
	}
}
