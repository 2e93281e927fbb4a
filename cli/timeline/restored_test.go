package timeline_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/cli/timeline"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// TestWhyNamesWriterOfMark: why names the writer that lifted a mark, and how often it was restored.
func TestWhyNamesWriterOfMark(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for by, want := range map[string]string{"driver": "removed by driver.", "": "removed by an unknown user."} {
		n := &timeline.Node{
			Name: "gpu-1", Ready: "True", Session: "s1", Unschedulable: true, ManagedCordon: true, Restored: &nodemark.Restored{Count: 3, At: at, By: by},
		}
		notes := strings.Join(timeline.Assemble(timeline.Facts{
			Node: "gpu-1", Now: at, Sighting: n, Cluster: timeline.Source{Name: "API server", Read: true},
		}).Notes, "\n")
		if !strings.Contains(notes, "restored 3 times, the last time at 2026-01-02 03:04:05 UTC, "+want) || !strings.Contains(notes, "nvsentinel release gpu-1") {
			t.Errorf("lifted by %q: %s", by, notes)
		}
	}
}
