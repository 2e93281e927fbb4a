package pipeline

import (
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// TestAnObservationHasNoPlaceInTheWindow: a PERSIST_ONLY event is no repeat and
// has none, and differs from the PROCESS event of the same content, so that no
// observation ever hides a fault.
func TestAnObservationHasNoPlaceInTheWindow(t *testing.T) {
	var w Window
	d := Default().Dedup
	fault := copyOf(1, 0)
	observed := copyOf(2, time.Second, func(e *record.Event) { e.ProcessingStrategy = record.PersistOnly })
	if p := w.Look(d, observed); p.Key != "" || p.Of != "" {
		t.Errorf("an observation has the place %+v", p)
	}
	if Key(fault.Event) == Key(observed.Event) {
		t.Error("a fault and its observation have one key")
	}
	if p := w.Look(d, fault); p.Key == "" {
		t.Error("a fault has no place: this test means nothing")
	}
}
