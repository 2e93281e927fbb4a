package reconciler

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/decision"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/internal/crashloop"
)

// Try computes what handling computes of one record alone, on a blank Node of its
// machine, and forgets it: if that kills the process, the record does.
func (rc *Reconciler) Try(_ context.Context, r record.Record) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.Event.NodeName}}
	v := decision.View{Name: r.Event.NodeName, Node: &decision.Node{Identity: r.Node, Session: r.Status.Session}}
	if record.OpenOfNode("").Matches(r) {
		v.Open = []record.Record{r}
	} else {
		v.Pending = []record.Record{r}
	}
	now := rc.Clock.Now()
	j := decision.Evaluate(v, rc.policy(node), now)
	rc.Mutator.Apply(node, marks.Of(j.Open), now)
}

// ReportDeadLetter reports on the Node that a record of it is not evaluated.
func (rc *Reconciler) ReportDeadLetter(ctx context.Context, f crashloop.Work) {
	node, err := rc.Nodes.Read(ctx, f.Key)
	if err != nil || node == nil {
		return
	}
	rc.Nodes.Note(ctx, node, Event{
		Warning: true, Reason: deadLetterReason,
		Message: "Record " + f.Record + " crashed fault-quarantine at each attempt. It is dead-lettered and not evaluated: " +
			"inspect the node manually, see docs/concepts/quarantine.md",
	})
}
