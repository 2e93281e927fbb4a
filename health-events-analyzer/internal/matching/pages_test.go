package matching_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-events-analyzer/internal/matching"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// measured notes the most records that one list brought.
type measured struct {
	matching.Records
	most int
}

func (m *measured) List(ctx context.Context, q store.Query) ([]record.Record, error) {
	list, err := m.Records.List(ctx, q)
	m.most = max(m.most, len(list))
	return list, err
}

// TestAWindowIsReadInPages: however many events a node has in its window, few
// records are in memory at once, and none of the window is left out.
func TestAWindowIsReadInPages(t *testing.T) {
	b := newBench(t, storetest.SQLite(t), 10_000)
	m := &measured{Records: b.store}
	b.Records = m
	b.fault("n1", "GPU-1", record.Process) // the oldest
	noise := make([]record.Record, 1500)
	for i := range noise {
		noise[i] = storetest.Record("n1", func(r *record.Record) {
			r.CreatedAt = testkit.Start.Add(-time.Minute)
			r.Event.GeneratedTimestamp, r.Event.IsHealthy, r.Event.ErrorCode = r.CreatedAt, false, []string{"13"}
			r.Event.EntitiesImpacted = []record.Entity{{EntityType: "GPU_UUID", EntityValue: fmt.Sprintf("GPU-%d", i)}}
		})
	}
	storetest.MustAppend(t, b.store, noise...)
	b.fault("n1", "GPU-2", record.Process)
	b.handle("n1")
	if n := b.derived(); n != 1 || m.most > 512 {
		t.Errorf("%d derived events, at most %d records at once", n, m.most)
	}
}

// TestRecordsThatAreTriedAreBounded: after a death each record that is tried is noted in
// the store, so that of a node with very many the newest are tried.
func TestRecordsThatAreTriedAreBounded(t *testing.T) {
	b := newBench(t, storetest.SQLite(t), 10_000)
	noise := make([]record.Record, 4200)
	for i := range noise {
		noise[i] = storetest.Record("n1", func(r *record.Record) { r.CreatedAt = testkit.Start.Add(-time.Minute) })
	}
	for part := range slices.Chunk(noise, 500) {
		storetest.MustAppend(t, b.store, part...)
	}
	tried := map[string]bool{}
	if err := b.Recent(t.Context(), "n1", func(r record.Record) error { tried[r.ID] = true; return nil }); err != nil {
		t.Fatal(err)
	}
	if len(tried) != 4096 || !tried[noise[len(noise)-1].ID] || tried[noise[0].ID] {
		t.Errorf("%d records are tried; the newest %v, the oldest %v", len(tried), tried[noise[len(noise)-1].ID], tried[noise[0].ID])
	}
}
