package decision_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-events-analyzer/decision"
	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
)

// TestEventChanges: a window is evaluated again from the time on that an event
// can change an evaluation, and not at all if it can change none.
func TestEventChanges(t *testing.T) {
	fault := ruleEvent("x", 1, "monitor", record.Process)
	observed := ruleEvent("x", 1, "monitor", record.PersistOnly)
	recovery := ruleEvent("x", 1, "monitor", record.Process)
	recovery.Event.IsHealthy = true
	derived := ruleEvent("x", 1, record.AnalyzerAgent, record.Process)
	ofCluster := ruleEvent("x", 1, record.AnalyzerAgent, record.Process)
	ofCluster.Event.Metadata["scope"] = string(rule.OnCluster)
	for _, tt := range []struct {
		name  string
		event record.Record
		want  bool
	}{
		{"a fault", fault, true},
		{"a recovery", recovery, true},
		{"a fault for the record only", observed, false},
		{"a fault of our own", derived, false},
		{"a fault of our own of the cluster, in a node's window", ofCluster, false},
	} {
		from, changed := decision.NewWindow(nil).Add(decision.NewFact(tt.event))
		if changed != tt.want || changed && !from.Equal(time.Unix(1, 0)) {
			t.Errorf("%s is judged: %v, from %v", tt.name, changed, from)
		}
	}
}

// TestRecordChanges: a window is evaluated again from when a fault was
// repaired, or was over, once.
func TestRecordChanges(t *testing.T) {
	repaired, cleared := time.Unix(20, 0), time.Unix(30, 0)
	done := func(r *record.Record) {
		r.Status.FaultRemediated, r.Status.LastRemediationTimestamp = new(true), &repaired
	}
	over := func(r *record.Record) {
		r.Status.Faults = []record.Fault{{Key: "k", ClearedTimestamp: &cleared}}
	}
	type edits []func(*record.Record)
	for _, tt := range []struct {
		name          string
		revision      int64 // the window has 5
		before, after edits
		from          time.Time // zero is no evaluation
	}{
		{"nothing", 6, nil, nil, time.Time{}},
		{"a repair", 6, nil, edits{done}, repaired},
		{"a repair that was known", 6, edits{done}, edits{done}, time.Time{}},
		{"a repair in a revision that was known", 5, nil, edits{done}, time.Time{}},
		{"a repair in a revision before", 4, nil, edits{done}, time.Time{}},
		{"an end", 6, nil, edits{over}, cleared},
		{"an end that was known", 6, edits{over}, edits{over}, time.Time{}},
		{"an end after a repair", 6, edits{done}, edits{done, over}, cleared},
		{"a repair after an end", 6, edits{over}, edits{done, over}, repaired},
	} {
		record := func(revision int64, edits edits) *decision.Fact {
			r := ruleEvent("x", 1, "monitor", record.Process)
			r.Revision = revision
			for _, e := range edits {
				e(&r)
			}
			return decision.NewFact(r)
		}
		w := decision.NewWindow(nil)
		w.Add(record(5, tt.before))
		from, changed := w.Add(record(tt.revision, tt.after))
		if changed == tt.from.IsZero() || changed && !from.Equal(tt.from) {
			t.Errorf("%s is judged: %v, from %v", tt.name, changed, from)
		}
	}
}

// TestAPublishedFaultTakesItsPlace: the window knows what it published before the store gives its
// place, and goes by that place then. A recovery before it is one of an earlier fault.
func TestAPublishedFaultTakesItsPlace(t *testing.T) {
	for place, open := range map[int64]bool{4: true, 6: false} {
		w := decision.NewWindow(nil)
		w.Add(decision.NewFact(ruleEvent("f", 0, record.AnalyzerAgent, record.Process)))
		w.Add(decision.NewFact(ruleEvent("f", 5, record.AnalyzerAgent, record.Process)))
		recovery := ruleEvent("r", place, record.AnalyzerAgent, record.Process)
		recovery.Event.IsHealthy = true
		w.Add(decision.NewFact(recovery))
		if got := len(w.Unknown()) > 0; got != open {
			t.Errorf("a fault in place 5 after a recovery in place %d is open: %v", place, got)
		}
	}
}

// TestSettled: what was evaluated and published is settled; an event before that time is
// not, nor one that is not there.
func TestSettled(t *testing.T) {
	w := decision.NewWindow(nil)
	minutes(w, 0, 3)
	w.Settle(start.Add(time.Minute))
	for id, want := range map[string]bool{"e0": false, "e1": true, "e2": true, "e3": false} {
		if got := w.Settled(id); got != want {
			t.Errorf("%s is settled: %v", id, got)
		}
	}
}

// reasons returns those of the evaluations of all events at once, in their order.
func reasons(w *decision.Window) (out []decision.Reason) {
	for _, f := range w.Evaluate(time.Time{}, start) {
		out = append(out, f.Reason)
	}
	return out
}

// TestOneFaultAWindow: a fault that is found in the same evaluation answers for those
// up to a window later, as one that was published does.
func TestOneFaultAWindow(t *testing.T) {
	w := decision.NewWindow(parsed(t, oneNode))
	for i, minute := range []int{0, 119, 120, 121} {
		w.Add(ev{at: minute, node: "n1", code: "79", gpu: "A"}.fact(i))
	}
	want := []decision.Reason{decision.Matched, decision.AlreadyPublished, decision.AlreadyPublished, decision.Matched}
	if got := reasons(w); !slices.Equal(got, want) {
		t.Errorf("with a window of two hours, minutes 0, 119, 120 and 121 are %v, want %v", got, want)
	}
}

// TestSubjectsAreBounded, as the ingest endpoint bounds what an event names.
func TestSubjectsAreBounded(t *testing.T) {
	for _, tt := range []struct{ gpus, codes, want int }{{64, 64, 4096}, {65, 64, 4096}} {
		e := ev{node: "n1", gpu: "0"}.fact(0).Record
		e.Event.ErrorCode, e.Event.EntitiesImpacted = nil, nil
		for i := range tt.codes {
			e.Event.ErrorCode = append(e.Event.ErrorCode, strconv.Itoa(i))
		}
		for i := range tt.gpus {
			e.Event.EntitiesImpacted = append(e.Event.EntitiesImpacted, record.Entity{EntityType: "GPU_UUID", EntityValue: strconv.Itoa(i)})
		}
		w := decision.NewWindow(parsed(t, oneNode+"by = [\"gpu\", \"code\"]\n"))
		w.Add(decision.NewFact(e))
		if got := len(reasons(w)); got != tt.want {
			t.Errorf("%d GPUs with %d codes are %d subjects, want %d", tt.gpus, tt.codes, got, tt.want)
		}
	}
}

// TestSourcesAreBounded: the newest hundred are named, and the others counted.
func TestSourcesAreBounded(t *testing.T) {
	for _, tt := range []struct {
		sources        int
		first, omitted string
	}{
		{99, "e0", ""}, {100, "e0", ""}, {101, "e1", "1"}, {103, "e3", "3"},
	} {
		nodes := slices.Repeat([]string{"n1"}, tt.sources)
		e := derive(t, oneNode+fmt.Sprintf("count = %d\n", tt.sources), nodes...)
		named := strings.Split(e.Metadata["sources"], ",")
		if len(named) != min(tt.sources, 100) || named[0] != tt.first || e.Metadata["sourcesOmitted"] != tt.omitted {
			t.Errorf("of %d sources %d are named, from %s on, and %q omitted", tt.sources, len(named), named[0], e.Metadata["sourcesOmitted"])
		}
	}
}

// TestRecoveryTriggersNothing: a recovery triggers no rule, whatever its fault triggered.
func TestRecoveryTriggersNothing(t *testing.T) {
	e := derive(t, strings.Replace(oneNode, "NONE", "RESTART_BM", 1), "n1")
	e.Metadata[record.MetadataBootID], e.DrainOverrides, e.QuarantineOverrides = "B1", &record.Override{Skip: true}, &record.Override{Force: true}
	if !e.IsFatal || e.RecommendedAction != record.ActionRestartBM {
		t.Fatalf("the fault asks for %s", e.RecommendedAction)
	}
	f := decision.NewFact(record.Record{ID: e.ID, Event: e})
	r := decision.Clearing{Fault: f, At: f.At.Add(time.Hour)}.Event()
	if !r.IsHealthy || r.IsFatal || r.RecommendedAction != record.ActionNone || r.DrainOverrides != nil || r.QuarantineOverrides != nil {
		t.Errorf("the recovery asks for %s, fatal %v, overrides %v and %v", r.RecommendedAction, r.IsFatal, r.DrainOverrides, r.QuarantineOverrides)
	}
	if r.ID == e.ID || r.CheckName != e.CheckName || r.NodeName != e.NodeName || r.BootID() != "" || !r.GeneratedTimestamp.Equal(f.At.Add(time.Hour)) {
		t.Errorf("the recovery is %+v of the fault %+v", r, e)
	}
}

// TestDerivedFaultIsOrdered: while its place in the store is not known, what was
// before it does not end it; once it is, what is behind it does.
func TestDerivedFaultIsOrdered(t *testing.T) {
	own := ruleEvent("own", 1, record.AnalyzerAgent, record.Process)
	own.Event.Metadata["clear"], own.Event.Metadata["sources"] = string(rule.WhenSourcesClose), "s1"
	recovery := own
	recovery.ID, recovery.Append, recovery.Event.IsHealthy = "recovery", 10, true
	for place, open := range map[int64]bool{9: false, 11: true} {
		w := decision.NewWindow(nil)
		own.Append = 1 << 62
		w.Add(decision.NewFact(own))
		w.Add(decision.NewFact(recovery))
		if len(w.Unknown()) == 0 {
			t.Error("it is over before its place is known")
		}
		own.Append = place
		w.Add(decision.NewFact(own))
		if got := len(w.Unknown()) > 0; got != open {
			t.Errorf("place %d: open %v, want %v", place, got, open)
		}
	}
}
