package reconciler_test

import (
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/internal/reconciler"
)

// TestThePastOfANodeIsPROCESSRecordsOnly: an observed recovery is no recovery.
func TestThePastOfANodeIsPROCESSRecordsOnly(t *testing.T) {
	r := record.Record{Event: record.Event{NodeName: "n", IsHealthy: true, ProcessingStrategy: record.Process}}
	r.Status.QuarantineVerdict = &record.Verdict{Reason: record.Cleared}
	if !reconciler.Past("n").Matches(r) {
		t.Error("a PROCESS recovery is not read")
	}
	r.Event.ProcessingStrategy = record.PersistOnly
	if reconciler.Past("n").Matches(r) {
		t.Error("a PERSIST_ONLY recovery is read")
	}
}
