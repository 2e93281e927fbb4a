package decision_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
)

// forged is a PERSIST_ONLY record with what only a PROCESS one can have.
func forged(rng *rand.Rand, id string) record.Record {
	changes := []func(*record.Record){func(*record.Record) {}, attempted("u", false), attempted("", false), attempted("u", true), ended, cleared, undrained}
	r := open(all(changes[rng.IntN(len(changes))], changes[rng.IntN(len(changes))]))
	r.ID, r.Event.ProcessingStrategy = id, record.PersistOnly
	r.Status.Session = []string{"s", "other", ""}[rng.IntN(3)]
	r.Status.NodeQuarantined = record.AlreadyQuarantined
	if r.Status.Remediation != nil {
		a := &r.Status.Remediation.Attempts[0]
		a.Session, a.Machine, a.Ordinal, a.SignalSent, a.SubmittedAt = "s", "p1", 1+rng.IntN(5), true, time.Unix(50, 0)
	}
	r.Event.RecommendedAction = []record.Action{record.ActionRestartBM, record.ActionReplaceVM, record.ActionContactSupport}[rng.IntN(3)]
	return r
}

// TestPersistOnlyRecordsChangeNoStep: whatever a PERSIST_ONLY record contains and wherever
// it comes from, the step is that of the PROCESS records alone.
func TestPersistOnlyRecordsChangeNoStep(t *testing.T) {
	reasons := map[decision.Reason]bool{}
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 9))
		w := newWorld(t)
		v := decision.View{Node: decision.Node{
			Name: "n", Presence: decision.Present, Session: "s", Marked: true, Identity: record.NodeIdentity{UID: "1", ProviderID: "p1", BootID: "b1"},
		}, Object: decision.Object{Presence: decision.Absent}}
		if rng.IntN(4) > 0 {
			change := []func(*record.Record){func(*record.Record) {}, attempted("", false), undrained, ended}[rng.IntN(4)]
			v.Records = []record.Record{open(all(change, func(r *record.Record) {
				r.Node, r.Status.Session, r.Status.NodeQuarantined = v.Node.Identity, "s", record.Quarantined
			}))}
		}
		next := func() decision.Step {
			return decision.Next(v, w.repairs, decision.Policy{RecoveryWithin: time.Hour}, time.Unix(100, 0))
		}
		want := next()
		for i := range 1 + rng.IntN(4) {
			v.Records = append(v.Records, forged(rng, fmt.Sprintf("p%d", i)))
		}
		if diff := cmp.Diff(want, next()); diff != "" {
			t.Fatalf("seed %d: step without and with PERSIST_ONLY records (-without +with):\n%s", seed, diff)
		}
		reasons[want.Reason] = true
	}
	if len(reasons) < 3 || !reasons[decision.Reserved] {
		t.Errorf("only steps for the reasons %v: too few to mean anything", reasons)
	}
}
