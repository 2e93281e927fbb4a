package decision_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// history is what one publisher observed, in its own order.
func history() []record.Record {
	event := func(seq uint64, healthy bool, code string, gpus ...string) record.Record {
		e := record.Event{
			ID: fmt.Sprintf("%d", seq), Agent: "syslog-health-monitor", ComponentClass: "GPU", CheckName: "SysLogsXIDError", NodeName: "n1",
			IsFatal: !healthy, IsHealthy: healthy, ProcessingStrategy: record.Process, RecommendedAction: record.ActionContactSupport,
			Metadata: map[string]string{record.MetadataSeqRuns: "r1"},
		}
		if code != "" {
			e.ErrorCode = []string{code}
		}
		for _, g := range gpus {
			e.EntitiesImpacted = append(e.EntitiesImpacted, record.Entity{EntityType: "GPU_UUID", EntityValue: g})
		}
		return record.Record{ID: e.ID, Event: e, Seq: seq, SeqEpoch: "e", Node: record.NodeIdentity{ProviderID: "p1"}}
	}
	return []record.Record{
		event(1, false, "79", "GPU-1", "GPU-2"),
		event(2, true, "", "GPU-1"),
		event(3, false, "48", "GPU-3"),
		event(4, true, ""),
		event(5, false, "79", "GPU-2"),
	}
}

// TestEveryOrderOfArrival: whatever order the store sees the records in,
// evaluated one by one or together, with clocks stepped back one hour between
// them, the same faults are open at the end.
func TestEveryOrderOfArrival(t *testing.T) {
	const want = "syslog-health-monitor|GPU|SysLogsXIDError|n1|GPU_UUID:GPU-2||79"
	for _, order := range permutations(len(history())) {
		for batch := 1; batch <= len(order); batch++ {
			w := newWorld(t)
			for i, at := range order {
				w.now = w.now.Add(-time.Hour)
				w.append(history()[at])
				if (i+1)%batch == 0 {
					w.evaluate()
				}
			}
			w.evaluate()
			if got := strings.Join(slices.Sorted(maps.Keys(w.openKeys())), " "); got != want {
				t.Errorf("order %v in batches of %d: open %q, want %q", order, batch, got, want)
			}
			if left := w.list(record.Pending); len(left) > 0 {
				t.Errorf("order %v: %d records unjudged", order, len(left))
			}
		}
	}
}

func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var out [][]int
	for _, p := range permutations(n - 1) {
		for i := 0; i <= len(p); i++ {
			out = append(out, slices.Insert(slices.Clone(p), i, n-1))
		}
	}
	return out
}
