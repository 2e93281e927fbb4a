package decision

import (
	"slices"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// writing puts what an evaluation changed into an order in which it may be
// written in part: another evaluation of what is left comes to the same end.
//
//   - What joins the session that was there comes first, so that the session is
//     not over before it.
//   - A recovery comes right after the last open fault it cleared: it is evaluated
//     again as long as one of them is not written, and never without one.
//   - What opens a new session comes last, so that no record of the former one
//     is open beside it, and before the faults that join it.
type writing struct {
	before  map[string]record.Record
	session string // that was there before

	faults     []record.Record
	recoveries []record.Record

	out     []record.Record
	written map[string]bool
	left    map[string]int // unwritten faults, by the id of what cleared them
}

func (w *writing) add(r record.Record) {
	if r.Event.IsHealthy {
		w.recoveries = append(w.recoveries, r)
	} else {
		w.faults = append(w.faults, r)
	}
}

func (w *writing) ordered() []record.Record {
	slices.SortStableFunc(w.faults, func(a, b record.Record) int { return w.rank(a) - w.rank(b) })
	w.written, w.left = map[string]bool{}, map[string]int{}
	cleared := map[string][]record.Record{}
	for _, r := range w.faults {
		for _, by := range w.newlyClearedBy(r) {
			cleared[by] = append(cleared[by], r)
			w.left[by]++
		}
	}
	for _, r := range w.faults {
		if w.rank(r) == joins {
			w.emit(r)
		}
	}
	for _, r := range w.recoveries {
		for _, f := range cleared[r.ID] {
			w.emit(f)
		}
		w.complete()
	}
	for _, r := range slices.Concat(w.faults, w.recoveries) {
		w.emit(r)
	}
	return w.out
}

func (w *writing) emit(r record.Record) {
	if w.written[r.ID] {
		return
	}
	w.out, w.written[r.ID] = append(w.out, r), true
	for _, by := range w.newlyClearedBy(r) {
		w.left[by]--
	}
}

// complete emits the recoveries whose last fault is emitted.
func (w *writing) complete() {
	for _, r := range w.recoveries {
		if left, cleared := w.left[r.ID]; cleared && left == 0 {
			w.emit(r)
		}
	}
}

// Ranks of faults.
const (
	joins    = iota // the session that was there
	inactive        // neither was open nor is
	closes          // was open, and is closed or changed
	opens           // a session
	follow          // the opening of a session
)

func (w *writing) rank(r record.Record) int {
	_, known := w.before[r.ID]
	switch {
	case known && record.Open(w.before[r.ID]):
		return closes
	case r.Reason() != record.Matched:
		return inactive
	case r.Status.Session == w.session:
		return joins
	case r.Status.Session == r.ID:
		return opens
	}
	return follow
}

// newlyClearedBy lists once each what cleared an entry of r just now.
func (w *writing) newlyClearedBy(r record.Record) []string {
	var out []string
	was := w.before[r.ID].Status.Faults
	for i, f := range r.Status.Faults {
		fresh := f.ClearedTimestamp != nil && (i >= len(was) || was[i].ClearedTimestamp == nil)
		if fresh && !slices.Contains(out, f.ClearedBy) {
			out = append(out, f.ClearedBy)
		}
	}
	return out
}

// Batches cuts Changed into parts of about n records, each to be written whole,
// in their order. A service that is stopped between two of them evaluates again and
// comes to the same end. A recovery is written together with the last fault it
// cleared, so that a part may be a little longer.
func (e Evaluation) Batches(n int) [][]record.Record {
	var out [][]record.Record
	begin := 0
	for i, r := range e.Changed {
		if i-begin >= n && r.Reason() != record.Cleared {
			out, begin = append(out, e.Changed[begin:i]), i
		}
	}
	if begin < len(e.Changed) {
		out = append(out, e.Changed[begin:])
	}
	return out
}
