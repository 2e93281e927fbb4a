package conditions_test

import (
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/conditions"
)

func TestDismissDropsWhatARecordRaised(t *testing.T) {
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

// TestAClearedConfirmationIsToldByTheEventItConfirms, which its publisher knows.
func TestAClearedConfirmationIsToldByTheEventItConfirms(t *testing.T) {
	const of = "019a1b2c-3d4e-7f01-8234-56789abcdef0"
	id, err := record.ConfirmationID(of)
	if err != nil {
		t.Fatal(err)
	}
	var s conditions.Set
	s.Fold(record.Record{ID: id, Event: record.Event{
		ID: id, Agent: "a", CheckName: "C", NodeName: "n", IsFatal: true, ProcessingStrategy: record.Process,
		Metadata: map[string]string{record.MetadataConfirms: of, "other": "x"},
	}})
	if got := s.Confirmed(map[string]bool{id: true}); len(got) != 1 || got[0] != of {
		t.Errorf("it confirms %v", got)
	}
	if got := s.Confirmed(map[string]bool{of: true}); got != nil {
		t.Errorf("another id confirms %v", got)
	}
}
