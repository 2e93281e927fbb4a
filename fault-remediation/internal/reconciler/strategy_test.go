package reconciler_test

import (
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/internal/reconciler"
)

// TestNoObservedBootSettlesAFault: what a monitor that is only observed reports about
// its boot proves none to be past.
func TestNoObservedBootSettlesAFault(t *testing.T) {
	s := reconciler.NewestOf("n", "a", "e")
	r := record.Record{SeqEpoch: "e", Event: record.Event{NodeName: "n", Agent: "a", ProcessingStrategy: record.Process}}
	if !s.Matches(r) {
		t.Error("it does not select a PROCESS record")
	}
	r.Event.ProcessingStrategy = record.PersistOnly
	if s.Matches(r) {
		t.Error("it selects a PERSIST_ONLY record")
	}
}
