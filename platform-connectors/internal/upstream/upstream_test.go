package upstream

import (
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// TestTheHistoryOfANodeIsPROCESSRecordsOnly: what was only observed is not even
// read when the fault set is rebuilt.
func TestTheHistoryOfANodeIsPROCESSRecordsOnly(t *testing.T) {
	r := record.Record{Event: record.Event{NodeName: "gpu-7", ProcessingStrategy: record.Process}}
	if !historyOf("gpu-7").Matches(r) {
		t.Error("a PROCESS record is not read")
	}
	r.Event.ProcessingStrategy = record.PersistOnly
	if historyOf("gpu-7").Matches(r) {
		t.Error("a PERSIST_ONLY record is read")
	}
}
