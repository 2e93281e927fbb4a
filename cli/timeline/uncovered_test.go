package timeline_test

import (
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/cli/timeline"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// TestUncoveredOf: the newest report of each node counts.
func TestUncoveredOf(t *testing.T) {
	report := func(node string, minute int, healthy bool) record.Record {
		at := time.Date(2026, 3, 1, 12, minute, 0, 0, time.UTC)
		return record.Record{ID: node + at.String(), CreatedAt: at, Event: record.Event{NodeName: node, IsHealthy: healthy}}
	}
	got := ""
	for _, u := range timeline.UncoveredOf([]record.Record{
		report("a", 9, false), report("b", 8, true), report("b", 7, false), report("c", 6, false), report("a", 5, true),
	}) {
		got += u.Node + u.Since.Format("04 ")
	}
	if got != "c06 a09 " {
		t.Errorf("uncovered: %q", got)
	}
}
