package snapshot

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/cli/timeline"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// TestSum: what several gateways have counted is one number, of each node's newest day.
func TestSum(t *testing.T) {
	at := func(hour int) time.Time { return time.Date(2026, 3, 29, hour, 0, 0, 0, time.UTC) }
	counted := func(records int64, first, last int) store.NodeUse {
		return store.NodeUse{Bytes: 1, Records: 1, Counted: store.CountedUse{Records: records, Bytes: 10 * records, First: at(first), Last: at(last)}}
	}
	got := sum([]store.UseDay{
		{Gateway: "a", Day: "2026-03-29", Nodes: map[string]store.NodeUse{"gpu-7": counted(5, 3, 9), "gpu-8": {Bytes: 1, Records: 1}}},
		{Gateway: "b", Day: "2026-03-29", Nodes: map[string]store.NodeUse{"gpu-7": counted(2, 1, 4)}},
		{Gateway: "c", Day: "2026-03-28", Nodes: map[string]store.NodeUse{"gpu-7": counted(100, 1, 2), "gpu-1": counted(1, 6, 7)}},
	})
	if diff := cmp.Diff([]timeline.Counted{
		{Node: "gpu-7", Records: 7, Bytes: 70, First: at(1), Last: at(9)}, {Node: "gpu-1", Records: 1, Bytes: 10, First: at(6), Last: at(7)},
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
