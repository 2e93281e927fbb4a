package sink

import (
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// TestTheHistoryOfANodeIsPROCESSRecordsOnly: what was only observed is not even
// read when the fault set is rebuilt.
func TestTheHistoryOfANodeIsPROCESSRecordsOnly(t *testing.T) {
	r := record.Record{Event: xid("0")}
	if !historyOf("gpu-7").Matches(r) {
		t.Error("a PROCESS record is not read")
	}
	r.Event.ProcessingStrategy = record.PersistOnly
	if historyOf("gpu-7").Matches(r) {
		t.Error("a PERSIST_ONLY record is read")
	}
}
