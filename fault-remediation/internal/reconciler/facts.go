package reconciler

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// facts are the view of a moment and the Node it was read from; the Node is
// nil when it is certainly absent, or was not worth reading.
type facts struct {
	view decision.View
	node *corev1.Node
}

// wrote takes the statuses that a step has written into the facts. What is to be
// written next is decided on records that are read again.
func (f *facts) wrote(step decision.Step) {
	for i := range f.view.Records {
		for _, w := range step.Writes {
			if r := &f.view.Records[i]; r.ID == w.ID {
				r.Status = w.Status
			}
		}
	}
}

// reservation is all that one look leaves for the next, which need not read it again:
// the facts on which the name of an object was reserved a moment ago. It ends with
// that next look, and with the handling. That it may be stale does no harm: the mark
// that precedes the creation holds only while the Node is as it was seen, and of two
// objects of one name the API server creates one. The nil reservation knows nothing.
type reservation struct {
	// name was in no attempt before: no object of this service has it.
	name string
	// node is nil where the mark may find nothing to write on it.
	node *corev1.Node
	// records are the ids of those that were known. One that is new since may have
	// been accepted under a boot that the Node does not show.
	records map[string]bool
}

// reserve is what is left of the facts after a step; nil if it reserved no name.
func reserve(f *facts, step decision.Step) *reservation {
	cur, ok := decision.Current(f.view.Records)
	if step.Reason != decision.Reserved || !ok {
		return nil
	}
	r := &reservation{name: cur.Attempt.Name, records: map[string]bool{}}
	if nodemark.Read(f.node).State != nodemark.Remediating {
		r.node = f.node
	}
	for _, x := range f.view.Records {
		r.records[x.ID] = true
	}
	return r
}

// nodeOf is the Node, if these are records that it was read with.
func (r *reservation) nodeOf(records []record.Record) *corev1.Node {
	if r == nil || slices.ContainsFunc(records, func(x record.Record) bool { return !r.records[x.ID] }) {
		return nil
	}
	return r.node
}

// names reports whether an attempt is the one that was reserved, still without object.
func (r *reservation) names(a record.Attempt) bool {
	return r != nil && a.Name == r.name && a.UID == ""
}
