package decision_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/decision"
	"github.com/nvidia/nvsentinel/fault-quarantine/rulematch"
)

// world is a node's records and its Node, without a store or a cluster.
type world struct {
	t          *testing.T
	records    map[string]record.Record
	appends    int64
	node       *decision.Node
	dryRun     bool
	holdReason string
	now        time.Time
	// backup are the records of an older state of the store.
	backup map[string]record.Record

	// stopAt is the write in parts after which the evaluator is stopped, once; parts
	// counts them.
	stopAt, parts int
}

func newWorld(t *testing.T) *world {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return &world{t: t, records: map[string]record.Record{}, now: start, node: &decision.Node{
		Identity: record.NodeIdentity{UID: "u1", ProviderID: "p1", BootID: "b1"}, Created: start.Add(-time.Hour),
	}}
}

func (w *world) append(r record.Record) {
	if _, known := w.records[r.ID]; known {
		return
	}
	w.appends++
	r.Append = w.appends
	if r.CreatedAt.IsZero() {
		r.CreatedAt = w.now
	}
	w.records[r.ID] = r
}

func (w *world) list(keep func(record.Record) bool) []record.Record {
	var out []record.Record
	for _, r := range w.records {
		if keep(r) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b record.Record) int { return int(a.Append - b.Append) })
	return out
}

func match(e record.Event) rulematch.Ruling {
	if slices.Contains(e.ErrorCode, "unreadable") {
		return rulematch.Ruling{Errors: []error{errors.New("no such key: driver")}}
	}
	if slices.Contains(e.ErrorCode, "soft") {
		return rulematch.Ruling{Names: []string{"soft"}, Effects: record.Effects{Taints: []record.Taint{{Key: "k", Effect: "PreferNoSchedule"}}}}
	}
	if !e.IsFatal {
		return rulematch.Ruling{}
	}
	return rulematch.Ruling{Names: []string{"fatal"}, Effects: record.Effects{Cordon: true}}
}

// evaluate runs one pass and writes it back in parts, as a store would, checking
// every write. If it is stopped between two parts, it runs again.
func (w *world) evaluate() decision.Evaluation {
	j := w.decide()
	size := len(j.Changed)
	if w.stopAt > 0 {
		size = 1
	}
	for _, part := range j.Batches(max(size, 1)) {
		for _, r := range part {
			w.write(r)
		}
		if w.parts++; w.parts == w.stopAt {
			return w.evaluate()
		}
	}
	w.mark(j)
	return j
}

// mark is what becomes of the Node, without the details of package marks.
func (w *world) mark(j decision.Evaluation) {
	if w.node == nil || j.Leave {
		return
	}
	n := w.node
	if n.Released {
		n.Ended = n.Unconfirmed
		for _, r := range n.Active {
			n.Ended = append(n.Ended, r.ID)
		}
	}
	n.Active = slices.DeleteFunc(n.Active, func(r record.Record) bool { return !slices.Contains(j.Unknown, r.ID) })
	n.Unconfirmed = j.Unknown
	if session := decision.Session(j.Open); session != "" || len(j.Unknown) == 0 {
		n.Released = n.Released && session == n.Session
		if session != "" && session != n.Session {
			n.Ended = nil
		}
		n.Session = session
	}
	n.Unschedulable = n.Session != ""
	for _, r := range j.Open {
		if !w.lists(r.ID) {
			n.Active = append(n.Active, record.Record{ID: r.ID, Event: r.Event, Seq: r.Seq, SeqEpoch: r.SeqEpoch})
		}
		if r.Status.QuarantineFinishTimestamp == nil {
			at := w.now
			r = w.records[r.ID]
			r.Status.QuarantineFinishTimestamp = &at
			w.records[r.ID] = r
		}
	}
}

func (w *world) write(r record.Record) {
	before := w.records[r.ID]
	if why := record.NeedsNewer(before); why != "" {
		w.t.Errorf("writing %s: %s", r.ID, why)
	}
	if err := record.CheckWrite(record.FaultQuarantine, before.Status, r.Status); err != nil {
		w.t.Errorf("writing %s: %v", r.ID, err)
	}
	if (r.ExpireAt != nil) != record.Finished(r) {
		w.t.Errorf("record %s: finished=%v but expireAt=%v", r.ID, record.Finished(r), r.ExpireAt)
	}
	r.Revision = before.Revision + 1
	w.records[r.ID] = r
}

func (w *world) decide() decision.Evaluation {
	view := decision.View{
		Name:    "n1",
		Node:    w.node,
		Pending: w.list(record.BacklogOfNode("n1").Matches),
		Open:    w.list(record.OpenOfNode("n1").Matches),
		Past: w.list(func(r record.Record) bool {
			return r.Evaluated() && (r.Event.IsHealthy || r.Status.Remediation != nil) && !record.Open(r)
		}),
	}
	if w.node != nil && w.node.Session != "" {
		view.Named = w.list(func(r record.Record) bool {
			settled := r.Evaluated() && r.Reason() != record.Held && !record.Open(r)
			return settled && (w.lists(r.ID) || r.Status.Session == w.node.Session)
		})
	}
	policy := decision.Policy{Match: match, DryRun: w.dryRun, HoldReason: w.holdReason, Retention: time.Hour}
	j := decision.Evaluate(view, policy, w.now)
	w.checkCondensed(view, policy, j)
	return j
}

// checkCondensed checks that an evaluation that has the open records condensed is the same. A
// recovery that clears nothing an earlier one does not need not wait with that one.
func (w *world) checkCondensed(view decision.View, policy decision.Policy, want decision.Evaluation) {
	recoveries := decision.Recoveries(view.Pending)
	view.Open, view.Condensed = slices.Clone(view.Open), map[string]bool{}
	for i, r := range view.Open {
		view.Open[i], view.Condensed[r.ID] = decision.Condense(r, recoveries), true
		if n := len(view.Open[i].Status.Faults); n > 1+len(recoveries) {
			w.t.Errorf("%s in brief has %d faults for %d recoveries", r.ID, n, len(recoveries))
		}
	}
	got := decision.Evaluate(view, policy, w.now)
	statuses := func(j decision.Evaluation) map[string]record.Status {
		out := map[string]record.Status{}
		for _, r := range j.Changed {
			switch {
			case j.Condensed[r.ID]:
				out[r.ID] = decision.Expand(w.records[r.ID], r, recoveries)
			case r.Reason() != record.NoOpenFault:
				out[r.ID] = r.Status
			}
		}
		return out
	}
	if diff := cmp.Diff(statuses(want), statuses(got)); diff != "" {
		w.t.Errorf("with the open records in brief it is decided otherwise (-whole +brief):\n%s", diff)
	}
}
