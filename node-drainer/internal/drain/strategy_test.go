package drain_test

import (
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/node-drainer/internal/drain"
)

// TestNoSelectorOfTheDrainSeesPersistOnly: each selects a PROCESS record in the
// states it is for, and not its PERSIST_ONLY twin.
func TestNoSelectorOfTheDrainSeesPersistOnly(t *testing.T) {
	for _, s := range []record.Selector{drain.Owed("n"), drain.OfNode("n", "s"), drain.Outstanding()} {
		t.Run(s.Name, func(t *testing.T) {
			if s.Strategy != record.Process {
				t.Errorf("it asks for strategy %q", s.Strategy)
			}
			seen := 0
			for _, eviction := range []record.Eviction{record.EvictionUnset, record.EvictionInProgress, record.EvictionSucceeded} {
				r := record.Record{Event: record.Event{NodeName: "n", ProcessingStrategy: record.Process}}
				r.Status = record.Status{
					NodeQuarantined: record.Quarantined, Session: "s", QuarantineVerdict: &record.Verdict{Reason: record.Matched},
					UserPodsEvictionStatus: record.EvictionStatus{Status: eviction},
				}
				if s.Matches(r) {
					seen++
				}
				r.Event.ProcessingStrategy = record.PersistOnly
				if s.Matches(r) {
					t.Errorf("it selects a PERSIST_ONLY record with eviction status %q", eviction)
				}
			}
			if seen == 0 {
				t.Error("it selects no PROCESS record")
			}
		})
	}
}
