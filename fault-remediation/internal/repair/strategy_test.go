package repair_test

import (
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/internal/repair"
)

// TestNoSelectorOfTheRepairSeesPersistOnly: each selects a PROCESS record with a
// repair under way, and not its PERSIST_ONLY twin; what a monitor that is only
// observed says about its boot settles no fault.
func TestNoSelectorOfTheRepairSeesPersistOnly(t *testing.T) {
	for _, s := range []record.Selector{repair.RepairsOf("n"), repair.Unsettled(), repair.NewestOf("n", "a", "e")} {
		t.Run(s.Name, func(t *testing.T) {
			if s.Strategy != record.Process {
				t.Errorf("it asks for strategy %q", s.Strategy)
			}
			r := record.Record{SeqEpoch: "e", Event: record.Event{NodeName: "n", Agent: "a", ProcessingStrategy: record.Process}}
			r.Status.QuarantineVerdict = &record.Verdict{Reason: record.Matched}
			r.Status.Remediation = &record.Remediation{}
			if !s.Matches(r) {
				t.Error("it does not select a PROCESS record")
			}
			r.Event.ProcessingStrategy = record.PersistOnly
			if s.Matches(r) {
				t.Error("it selects a PERSIST_ONLY record")
			}
		})
	}
}
