package decision_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/decision"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
)

// unfiltered evaluates as if every selector had forgotten the strategy.
func (w *world) unfiltered() decision.Evaluation {
	reason := func(want ...record.Reason) func(record.Record) bool {
		return func(r record.Record) bool {
			for _, x := range want {
				if r.Reason() == x {
					return true
				}
			}
			return false
		}
	}
	v := decision.View{Name: "n1", Node: w.node, Pending: w.list(reason("", record.Held))}
	for _, r := range w.list(reason(record.Matched, record.Cleared, record.NoOpenFault)) {
		if r.IsFault() && !r.Status.AllCleared() {
			v.Open = append(v.Open, r)
		} else {
			v.Past = append(v.Past, r)
		}
	}
	j := decision.Evaluate(v, decision.Policy{Match: match, Retention: time.Hour}, w.now)
	for _, r := range j.Changed {
		r.Revision++
		w.records[r.ID] = r
	}
	w.node.Session = decision.Session(j.Open)
	return j
}

// chance makes one event of a random history.
func chance(rng *rand.Rand, id string, seq uint64, strategy record.Strategy) record.Record {
	pick := func(from ...string) string { return from[rng.IntN(len(from))] }
	healthy := rng.IntN(3) == 0
	e := record.Event{
		ID: id, Agent: pick("syslog-health-monitor", "other"), ComponentClass: "GPU", CheckName: "SysLogsXIDError", NodeName: "n1",
		IsFatal: !healthy, IsHealthy: healthy, RecommendedAction: record.ActionRestartBM, ProcessingStrategy: strategy,
		Metadata: map[string]string{record.MetadataBootID: pick("b1", "b1", "b0"), record.MetadataSeqRuns: "r1"},
	}
	if gpu := pick("", "GPU-1", "GPU-2"); gpu != "" {
		e.EntitiesImpacted = []record.Entity{{EntityType: "GPU_UUID", EntityValue: gpu}}
	}
	if code := pick("", "79", "48"); code != "" {
		e.ErrorCode = []string{code}
	}
	r := record.Record{ID: id, Event: e, Node: record.NodeIdentity{UID: "u1", ProviderID: "p1"}}
	if rng.IntN(4) > 0 {
		r.Seq, r.SeqEpoch = seq, "e1"
	}
	return r
}

// forge gives a PERSIST_ONLY record what only a PROCESS one can have.
func forge(rng *rand.Rand, r record.Record) record.Record {
	switch rng.IntN(4) {
	case 0:
		r.Status.QuarantineVerdict = &record.Verdict{Reason: record.Matched, Effects: record.Effects{Cordon: true}}
		r.Status.Session, r.Status.NodeQuarantined = r.ID, record.Quarantined
		r.Status.Faults = []record.Fault{{Key: "forged"}}
	case 1:
		r.Status.QuarantineVerdict = &record.Verdict{Reason: record.Cleared}
	case 2:
		r.Status.Remediation = &record.Remediation{Outcome: record.OutcomeSucceeded, Attempts: []record.Attempt{{ReplacedBootID: "b1"}}}
		r.Status.QuarantineVerdict = &record.Verdict{Reason: record.Matched}
		r.Status.Faults = []record.Fault{{Key: "forged", ClearedTimestamp: new(time.Unix(1, 0))}}
	}
	return r
}

// TestPersistOnlyRecordsChangeNoEvaluation: a history with any number of
// PERSIST_ONLY faults and recoveries among its PROCESS events leads to the same
// verdicts, open faults and marks as the PROCESS events alone, even if every
// selector let them through and some bear a status: none lifts a PROCESS fault,
// none keeps a node quarantined.
func TestPersistOnlyRecordsChangeNoEvaluation(t *testing.T) {
	lifted, kept := 0, 0
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 5))
		mixed, alone := newWorld(t), newWorld(t)
		observed := rng.IntN(40)
		for i := range uint64(observed + 1 + rng.IntN(12)) {
			strategy := record.Process
			if rng.IntN(observed+6) >= 6 {
				strategy = record.PersistOnly
			}
			r := chance(rng, fmt.Sprintf("%s-%d", strategy, i), i+1, strategy)
			if strategy == record.Process {
				alone.append(r)
			} else {
				r = forge(rng, r)
			}
			mixed.append(r)
			if rng.IntN(3) > 0 {
				continue
			}
			got, want := mixed.unfiltered(), alone.unfiltered()
			if diff := cmp.Diff(marks.Of(want.Open), marks.Of(got.Open)); diff != "" {
				t.Fatalf("seed %d: marks without and with PERSIST_ONLY (-without +with):\n%s", seed, diff)
			}
			if len(want.Open) == 0 {
				lifted++
			} else {
				kept++
			}
		}
		mixed.unfiltered()
		alone.unfiltered()
		for id, want := range alone.records {
			if diff := cmp.Diff(want.Status, mixed.records[id].Status); diff != "" {
				t.Fatalf("seed %d: status of %s (-without +with):\n%s", seed, id, diff)
			}
		}
		for id, r := range mixed.records {
			if r.Revision != 0 && !r.Acts() {
				t.Fatalf("seed %d: %s was judged: %+v", seed, id, r.Status)
			}
		}
	}
	if lifted < 100 || kept < 100 {
		t.Errorf("%d judgements left a free node and %d a marked one: too few to mean anything", lifted, kept)
	}
}

// TestRecoveriesAct: a condensed record has its faults apart by the recoveries that
// will clear them, and an observed recovery clears none.
func TestRecoveriesAct(t *testing.T) {
	healthy := func(id string, strategy record.Strategy) record.Record {
		return record.Record{ID: id, Event: record.Event{ID: id, NodeName: "n1", IsHealthy: true, ProcessingStrategy: strategy}}
	}
	got := decision.Recoveries([]record.Record{healthy("r1", record.PersistOnly), healthy("r2", record.Process), {ID: "f", Event: record.Event{ProcessingStrategy: record.Process}}})
	if len(got) != 1 || got[0].ID != "r2" {
		t.Errorf("recoveries %v, want r2 alone", got)
	}
}
