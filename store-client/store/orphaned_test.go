package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

func event(id string, at int64, change ...func(*record.Record)) record.Record {
	r := record.Record{ID: id, Append: at, Event: record.Event{NodeName: "n", Agent: "a", CheckName: "c", ProcessingStrategy: record.Process}}
	for _, c := range change {
		c(&r)
	}
	return r
}

func observed(r *record.Record) { r.Event.ProcessingStrategy = record.PersistOnly }

func TestOf(t *testing.T) {
	repeat := func(r *record.Record) { r.Event.Metadata = map[string]string{record.MetadataRepeatOf: "open"} }
	waits := func(r *record.Record) {
		r.Event.Metadata = map[string]string{record.MetadataStrategyReason: record.Unconfirmed}
	}
	for name, tt := range map[string]struct {
		newest []record.Record
		want   string
	}{
		"one that waits to be confirmed": {[]record.Record{event("p", 2, observed, waits), event("open", 1)}, ""},
		"observed, and waits now":        {[]record.Record{event("q", 3, observed, waits), event("p", 2, observed)}, ""},
		"nothing said since":             {[]record.Record{event("open", 1)}, ""},
		"switched":                       {[]record.Record{event("p", 2, observed), event("open", 1)}, "p"},
		"switched, the newest counts":    {[]record.Record{event("q", 3, observed), event("p", 2, observed)}, "q"},
		"switched and back":              {[]record.Record{event("f", 3), event("p", 2, observed)}, ""},
		"observed before the fault":      {[]record.Record{event("p", 0, observed)}, ""},
		"a repeat that was demoted":      {[]record.Record{event("p", 2, observed, repeat), event("open", 1)}, ""},
		"another check":                  {[]record.Record{event("p", 2, observed, func(r *record.Record) { r.Event.CheckName = "d" })}, ""},
		"another agent":                  {[]record.Record{event("p", 2, observed, func(r *record.Record) { r.Event.Agent = "b" })}, ""},
		"another node":                   {[]record.Record{event("p", 2, observed, func(r *record.Record) { r.Event.NodeName = "m" })}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, f := range store.OrphanedOf([]record.Record{event("open", 1), event("noted", 1, observed)}, tt.newest) {
				got += f.Newest.ID
			}
			if got != tt.want {
				t.Errorf("stranded by %q, want %q", got, tt.want)
			}
		})
	}
}

// TestFind asks a real store.
func TestFind(t *testing.T) {
	s := storetest.Open(t, storetest.SQLiteDSN(t), storeopen.Options{})
	fault := storetest.Record("n1")
	later := storetest.Record("n1", observed)
	later.Event.Agent, later.Event.CheckName = fault.Event.Agent, fault.Event.CheckName
	storetest.MustAppend(t, s, fault, later, storetest.Record("n2"))
	list, err := s.List(t.Context(), store.Query{Selector: record.ProcessableHealthEventInserts()})
	if err != nil {
		t.Fatal(err)
	}
	found, err := store.FindOrphaned(t.Context(), s, list)
	if err != nil || len(found) != 1 {
		t.Fatalf("found %+v, %v", found, err)
	}
	if diff := cmp.Diff([]string{fault.ID, later.ID}, []string{found[0].Open.ID, found[0].Newest.ID}); diff != "" {
		t.Errorf("stranded (-want +got):\n%s", diff)
	}
	if _, err := store.FindOrphaned(t.Context(), away{}, list); err == nil {
		t.Error("a store that does not answer strands nothing")
	}
}

type away struct{}

func (away) List(context.Context, store.Query) ([]record.Record, error) {
	return nil, errors.New("away")
}
