package conditions_test

import (
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/conditions"
)

func TestDismissRemovesConditionsOfRecord(t *testing.T) {
	var s conditions.Set
	for i, id := range []string{"a", "b"} {
		s.Fold(record.Record{ID: id, Event: record.Event{
			ID: id, Agent: "m", CheckName: "check", NodeName: "n", IsFatal: true, ProcessingStrategy: record.Process,
			EntitiesImpacted: []record.Entity{{EntityType: "GPU", EntityValue: string(rune(48 + i))}},
		}})
	}
	if s.Dismiss(map[string]bool{"c": true}) || s.Faults() != 2 {
		t.Errorf("a foreign record dismisses; %d faults left", s.Faults())
	}
	if !s.Dismiss(map[string]bool{"a": true}) || s.Faults() != 1 || s.Checks["check"].Faults[0].Record.ID != "b" {
		t.Errorf("%d faults left, want that of b", s.Faults())
	}
}
