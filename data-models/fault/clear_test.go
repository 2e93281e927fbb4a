package fault_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// TestManualClearanceNamesOnlyTheFault: the recovery of a person clears
// every entry of the record it is about, comes after it, and clears no other.
func TestManualClearanceNamesOnlyTheFault(t *testing.T) {
	event := func(gpu, code string) record.Event {
		return record.Event{
			Agent: "health-events-analyzer", CheckName: "RepeatedXIDErrorOnSameGPU", ComponentClass: "GPU", NodeName: "n", IsFatal: true,
			ErrorCode: []string{code}, EntitiesImpacted: []record.Entity{{EntityType: "GPU_UUID", EntityValue: gpu}},
			ProcessingStrategy: record.Process, Metadata: map[string]string{record.MetadataBootID: "b"},
		}
	}
	r := record.Record{ID: "r1", Append: 7, Seq: 9, SeqEpoch: "e", Event: event("GPU-1", "63")}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := fault.ManualClearance(r, "alice\n", "replaced\u2028 "+strings.Repeat("x", 1000), record.NodeIdentity{UID: "u"}, now)
	c.Append = 8 // what the store gives it
	for _, entry := range fault.Entries(r.Event) {
		if !fault.Clears(c.Event, r.Event, entry) || !fault.Before(r, c) {
			t.Errorf("entry %s is not cleared", entry.Key)
		}
	}
	for _, other := range []record.Event{event("GPU-2", "63"), event("GPU-1", "64")} {
		for _, entry := range fault.Entries(other) {
			if fault.Clears(c.Event, other, entry) {
				t.Errorf("entry %s is cleared by it", entry.Key)
			}
		}
	}
	e := c.Event
	if e.Metadata[fault.MetadataClearedBy] != "alice " || e.Metadata[fault.MetadataClears] != "r1" || !strings.HasPrefix(e.Message, "cleared by alice : replaced  x") {
		t.Errorf("it says %q %v", e.Message, e.Metadata)
	}
	if len(e.Message) > 600 || c.SeqEpoch != "" || e.BootID() != "" || !e.IsHealthy || e.IsFatal || c.ID != fault.ClearingID("r1") || len(c.ID) != 36 {
		t.Errorf("recovery %+v", c)
	}
	if again := fault.ManualClearance(r, "bob", "", record.NodeIdentity{}, now); again.ID != c.ID || fault.ClearingID("r2") == c.ID {
		t.Error("its id does not follow from the record's")
	}
}
