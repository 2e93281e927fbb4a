package postgresql_test

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/postgresql"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// TestPipelines compares the rows that the server selects for each pipeline,
// and what a feed of it delivers, with the selector's meaning, over the table
// that MongoDB's pipelines are tested with.
func TestPipelines(t *testing.T) {
	_, dsn := pgtest.Database(t)
	s := storetest.Open(t, dsn, storeopen.Options{})
	rng := rand.New(rand.NewPCG(7, 79))
	records := storetest.Inserted()
	for range 60 {
		records = append(records, storetest.Generate(rng))
	}
	storetest.Seed(t, s, records...)
	all, err := s.List(t.Context(), store.Query{})
	if err != nil {
		t.Fatal(err)
	}
	type pair struct {
		selector record.Selector
		pipeline postgresql.Pipeline
	}
	pairs := []pair{
		{record.AllHealthEventInserts(), postgresql.BuildAllHealthEventInsertsPipeline()},
		{record.ProcessableHealthEventInserts(), postgresql.BuildProcessableHealthEventInsertsPipeline()},
		{record.ProcessableNonFatalUnhealthyInserts(), postgresql.BuildProcessableNonFatalUnhealthyInsertsPipeline()},
		{record.NodeQuarantineStatus(), postgresql.BuildNodeQuarantineStatusPipeline()},
		{record.QuarantinedAndDrainedNodes(), postgresql.BuildQuarantinedAndDrainedNodesPipeline()},
	}
	named := len(pairs)
	for range 40 {
		sel := storetest.GenerateSelector(rng)
		pairs = append(pairs, pair{sel, postgresql.PipelineOf(sel)})
	}
	for i, p := range pairs {
		want := map[string]bool{}
		for _, r := range all {
			if p.selector.Matches(r) {
				want[r.ID] = true
			}
		}
		if p.pipeline.InsertsOnly != p.selector.InsertsOnly {
			t.Errorf("%s: insertions only: %v", p.selector.Name, p.pipeline.InsertsOnly)
		}
		if diff := cmp.Diff(want, rows(t, dsn, p.pipeline)); diff != "" {
			t.Errorf("%+v (-meaning +server):\n%s", p.selector, diff)
		}
		if i >= named {
			continue // the conformance suite feeds these
		}
		if len(want) == 0 || len(want) == len(all) && i > 0 {
			t.Errorf("%s selects %d of %d records: too few or too many to mean anything", p.selector.Name, len(want), len(all))
		}
		fed := map[string]bool{}
		for _, r := range storetest.Receive(t, feedOf(t, s, p.selector.Name, p.selector), len(want)) {
			fed[r.ID] = true
		}
		if diff := cmp.Diff(want, fed); diff != "" {
			t.Errorf("%s (-meaning +feed):\n%s", p.selector.Name, diff)
		}
	}
}

// rows are the ids that the server selects.
func rows(t *testing.T, dsn string, p postgresql.Pipeline) map[string]bool {
	t.Helper()
	found, err := raw(t, dsn).QueryContext(t.Context(), "SELECT id FROM health_events WHERE "+p.Where, p.Args...)
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	out := map[string]bool{}
	for found.Next() {
		var id string
		if err := found.Scan(&id); err != nil {
			t.Fatal(err)
		}
		out[id] = true
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}
