package decision

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// forged is a PERSIST_ONLY record with what only a PROCESS one can have.
func forged(rng *rand.Rand, id string) record.Record {
	pick := func(from ...string) string { return from[rng.IntN(len(from))] }
	r := record.Record{ID: id, CreatedAt: start, Event: record.Event{ID: id, ProcessingStrategy: record.PersistOnly}}
	r.Status = record.Status{
		NodeQuarantined: record.Quarantine(pick("Quarantined", "AlreadyQuarantined", "Cancelled", "UnQuarantined")),
		Session:         pick("r1", "r1", "other", ""), Faults: []record.Fault{{Key: "k"}},
		QuarantineVerdict:      &record.Verdict{Reason: record.Matched, Effects: record.Effects{Cordon: true}},
		UserPodsEvictionStatus: record.EvictionStatus{Status: record.Eviction(pick("", "InProgress", "Succeeded", "AlreadyDrained"))},
	}
	return r
}

// TestPersistOnlyRecordsChangeNoStep: whatever a PERSIST_ONLY record contains and
// whatever added it to the view, the step is that of the PROCESS records alone.
func TestPersistOnlyRecordsChangeNoStep(t *testing.T) {
	kinds := map[Kind]bool{}
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 7))
		v := draining("now", rng.IntN(3))
		v.Records[0].Status.UserPodsEvictionStatus.Status = []record.Eviction{"", "InProgress", "Succeeded"}[rng.IntN(3)]
		if rng.IntN(3) == 0 {
			v.Records = nil
		}
		want := Next(v, policy(t), start)
		for i := range 1 + rng.IntN(4) {
			v.Records = append(v.Records, forged(rng, fmt.Sprintf("p%d", i)))
		}
		if diff := cmp.Diff(want, Next(v, policy(t), start), cmp.AllowUnexported(Step{})); diff != "" {
			t.Fatalf("seed %d: step without and with PERSIST_ONLY records (-without +with):\n%s", seed, diff)
		}
		kinds[want.Kind] = true
	}
	if len(kinds) < 3 {
		t.Errorf("only steps of the kinds %v: too few to mean anything", kinds)
	}
}

// TestManyPersistOnlyRecordsStartNoDrain: a thousand faults that were only
// observed, on a node that is cordoned by somebody else, move no pod.
func TestManyPersistOnlyRecordsStartNoDrain(t *testing.T) {
	v := draining("now", 3)
	one := v.Records[0]
	one.Event.ProcessingStrategy = record.PersistOnly
	v.Records = nil
	for i := range 1000 {
		one.ID = fmt.Sprint(i)
		v.Records = append(v.Records, one)
	}
	if s := Next(v, policy(t), start.Add(24*time.Hour)); len(s.Pods)+len(s.Updates) > 0 || s.Label != "" {
		t.Errorf("%s %s: %d pods, %d updates, label %q", s.Kind, s.Why, len(s.Pods), len(s.Updates), s.Label)
	}
}
