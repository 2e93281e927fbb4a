package decision_test

import (
	"slices"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/decision"
)

// TestSessionIsRecorded: a Node whose list of faults is empty is released once a record
// of its session is there, under whichever of its two ids. Until then it stays in quarantine.
func TestSessionIsRecorded(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	of := func(node, session string) record.Record {
		return record.Record{
			ID: "f1", Event: record.Event{ID: "f1", NodeName: node, ProcessingStrategy: record.Process},
			Status: record.Status{
				Session: session, QuarantineVerdict: &record.Verdict{Reason: record.Matched},
				Faults: []record.Fault{{Key: "k", ClearedTimestamp: &now, ClearedBy: "r1"}},
			},
		}
	}
	records := func(r ...record.Record) []record.Record { return r }
	for name, tt := range map[string]struct {
		session string
		there   []record.Record
		unknown []string
	}{
		"no session":                 {"", nil, nil},
		"no record":                  {"s", nil, []string{"s"}},
		"a record of it":             {"s", records(of("n1", "s")), nil},
		"a record under the alias":   {"s", records(of("n1", record.Alias("n1", "s"))), nil},
		"the Node shows the alias":   {record.Alias("n1", "s"), records(of("n1", "s")), nil},
		"another session's record":   {"s", records(of("n1", "other")), []string{"s"}},
		"a record of no session":     {"s", records(of("n1", "")), []string{"s"}},
		"another node's alias":       {"s", records(of("n1", record.Alias("n2", "s"))), []string{"s"}},
		"another node's record":      {"s", records(of("n2", "s")), []string{"s"}},
		"one of it among all others": {"s", records(of("n1", ""), of("n1", "other"), of("n1", "s")), nil},
	} {
		t.Run(name, func(t *testing.T) {
			v := decision.View{Name: "n1", Node: &decision.Node{Session: tt.session}, Named: tt.there}
			j := decision.Evaluate(v, decision.Policy{Match: match}, now)
			if !slices.Equal(j.Unknown, tt.unknown) || (j.Waiting == decision.WaitUnknown) != (len(tt.unknown) > 0) {
				t.Errorf("unknown %q, waiting %q; want %q", j.Unknown, j.Waiting, tt.unknown)
			}
		})
	}
}

// TestAnOpenRecordWithoutFaults: a record that was stored without the list of its faults
// stops no evaluation of its node. It stays open, for a person to end.
func TestAnOpenRecordWithoutFaults(t *testing.T) {
	w := newWorld(t)
	w.append(record.Record{ID: "f1", Seq: 1, SeqEpoch: "e1", Node: w.node.Identity, Event: event("f1", false)})
	w.evaluate()
	r := w.records["f1"]
	r.Status.Faults = nil
	w.records["f1"] = r
	w.append(record.Record{ID: "r1", Seq: 2, SeqEpoch: "e1", Node: w.node.Identity, Event: event("r1", true)})
	j := w.evaluate()
	if got := w.records["r1"].Reason(); got != record.NoOpenFault || decision.Session(j.Open) != "f1" {
		t.Errorf("the recovery is %s, session %q", got, decision.Session(j.Open))
	}
}

// TestStoppedTwice: the evaluator stops behind the first of two faults that a recovery clears,
// and again while a second recovery clears the rest of it. Wherever it stops, both count.
func TestStoppedTwice(t *testing.T) {
	stopped := func(parts int) (*world, int) {
		w := newWorld(t)
		w.append(record.Record{ID: "f1", Seq: 1, SeqEpoch: "e1", Node: w.node.Identity, Event: event("f1", false, "GPU-1", "GPU-2")})
		w.append(record.Record{ID: "f2", Seq: 2, SeqEpoch: "e1", Node: w.node.Identity, Event: event("f2", false, "GPU-3")})
		w.evaluate()
		w.append(record.Record{ID: "r1", Seq: 3, SeqEpoch: "e1", Node: w.node.Identity, Event: event("r1", true, "GPU-1", "GPU-3")})
		for _, r := range w.decide().Batches(1)[0] {
			w.write(r)
		}
		w.append(record.Record{ID: "r2", Seq: 4, SeqEpoch: "e1", Node: w.node.Identity, Event: event("r2", true, "GPU-2")})
		all := w.decide().Batches(1)
		for _, part := range all[:parts] {
			for _, r := range part {
				w.write(r)
			}
		}
		w.evaluate()
		return w, len(all)
	}
	w, parts := stopped(0)
	want := w.end()
	if parts < 2 {
		t.Fatalf("%d parts: nothing is written in part", parts)
	}
	for _, id := range []string{"r1", "r2"} {
		if w.records[id].Reason() != record.Cleared {
			t.Errorf("%s is %s, want %s", id, w.records[id].Reason(), record.Cleared)
		}
	}
	for n := 1; n <= parts; n++ {
		if w, _ := stopped(n); w.end() != want {
			t.Errorf("stopped behind part %d of %d:\n%s\nwant:\n%s", n, parts, w.end(), want)
		}
	}
}

// event is one of a monitor about GPUs of the node, or about all of it.
func event(id string, healthy bool, gpus ...string) record.Event {
	e := record.Event{
		ID: id, Agent: "syslog-health-monitor", ComponentClass: "GPU", CheckName: "SysLogsXIDError", NodeName: "n1",
		IsFatal: !healthy, IsHealthy: healthy, ProcessingStrategy: record.Process, RecommendedAction: record.ActionRestartBM,
		Metadata: map[string]string{record.MetadataSeqRuns: "r1"},
	}
	for _, gpu := range gpus {
		e.EntitiesImpacted = append(e.EntitiesImpacted, record.Entity{EntityType: "GPU_UUID", EntityValue: gpu})
	}
	return e
}
