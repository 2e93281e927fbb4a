package conditions

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/extra"
	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
)

func TestStored(t *testing.T) {
	type entity = record.Entity
	nvlink := func(r *record.Record) {
		r.Event.EntitiesImpacted = append(r.Event.EntitiesImpacted, entity{EntityType: "NVLINK", EntityValue: "3"})
	}
	two := change(fatal(1, "GPU-1", "79"), func(r *record.Record) {
		r.ID, r.Event.ErrorCode = "two", []string{"79", "48"}
		r.Event.EntitiesImpacted = append(r.Event.EntitiesImpacted, entity{EntityType: "GPU_UUID", EntityValue: "GPU-2"})
	})
	port := func(names ...string) *Set {
		var c Check
		for _, n := range names {
			c.Faults = append(c.Faults, Fault{fault.Entry{Key: n, Names: []string{n}}, record.Record{ID: "old", Accepted: "sum"}})
		}
		return &Set{Checks: map[string]*Check{xid: &c}}
	}
	for name, tc := range map[string]struct {
		set    *Set
		events []record.Record
		ids    []string
		want   []string // id, codes and entities
	}{
		"all that it named": {&Set{}, []record.Record{two}, []string{"two"}, []string{"two [79 48] [{GPU_UUID GPU-1} {GPU_UUID GPU-2}]"}},
		"what stands of it": {&Set{}, []record.Record{two, healthy(2, "GPU-1", "")}, []string{"two"}, []string{"two [79 48] [{GPU_UUID GPU-2}]"}},
		"one code of it":    {&Set{}, []record.Record{two, healthy(2, "", "48")}, []string{"two"}, []string{"two [79] [{GPU_UUID GPU-1} {GPU_UUID GPU-2}]"}},
		"without a code":    {&Set{}, []record.Record{fatal(1, "GPU-1", "")}, []string{"GPU-1//1"}, []string{"GPU-1//1 [] [{GPU_UUID GPU-1}]"}},
		"a part of a device": {
			&Set{},
			[]record.Record{change(fatal(1, "GPU-1", "79"), nvlink)}, []string{"GPU-1/79/1"}, []string{"GPU-1/79/1 [79] [{GPU_UUID GPU-1} {NVLINK 3}]"},
		},
		"several, as they are asked for": {
			&Set{},
			[]record.Record{fatal(1, "GPU-1", "79"), fatal(2, "GPU-2", "79"), fatal(3, "GPU-3", "79")}, []string{"GPU-3/79/3", "GPU-1/79/1"},
			[]string{"GPU-3/79/3 [79] [{GPU_UUID GPU-3}]", "GPU-1/79/1 [79] [{GPU_UUID GPU-1}]"},
		},
		"one that does not stand":                      {&Set{}, []record.Record{fatal(1, "GPU-1", "79")}, []string{"other"}, nil},
		"of an older version, which lacks the content": {&Set{Checks: map[string]*Check{xid: {Faults: []Fault{{Record: record.Record{ID: "old"}}}}}}, nil, []string{"old"}, nil},
		"of an older version, whole":                   {port("||||Port:7||"), nil, []string{"old"}, nil},
		"of an older version, in parts":                {port("Switch:a", "Port:7"), nil, []string{"old"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, r := range tc.events {
				tc.set.Fold(r)
			}
			var got []string
			for _, r := range tc.set.Stored(tc.ids) {
				got = append(got, fmt.Sprint(r.ID, " ", r.Event.ErrorCode, " ", r.Event.EntitiesImpacted))
				if r.Append != 0 || r.Accepted == "" {
					t.Errorf("appended at %d with content %q", r.Append, r.Accepted)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestFoldStored: what the history of a node leaves standing.
func TestFoldStored(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	here := record.NodeIdentity{ProviderID: "p"}
	on := func(machine string) func(*record.Record) {
		return func(r *record.Record) { r.Node.ProviderID = machine }
	}
	cleared := func(r *record.Record) {
		r.Status.Faults = []record.Fault{{Key: fault.Entries(r.Event)[0].Key, ClearedTimestamp: &at}}
	}
	for name, tc := range map[string]struct {
		records []record.Record
		want    int
	}{
		"a fault of this machine":   {[]record.Record{change(fatal(1, "GPU-1", "79"), on("p"))}, 1},
		"of another machine":        {[]record.Record{change(fatal(1, "GPU-1", "79"), on("q"))}, 0},
		"a recovery of another one": {[]record.Record{fatal(1, "GPU-1", "79"), change(healthy(2, "", ""), on("q"))}, 1},
		"a recovery":                {[]record.Record{fatal(1, "GPU-1", "79"), healthy(2, "", "")}, 0},
		"an observed one":           {[]record.Record{change(fatal(1, "GPU-1", "79"), func(r *record.Record) { r.Event.ProcessingStrategy = record.PersistOnly })}, 0},
		"one that is not fatal":     {[]record.Record{fatalNot(1)}, 0},
		"a cleared one":             {[]record.Record{change(fatal(1, "GPU-1", "79"), cleared)}, 0},
		"a cleared one of several":  {[]record.Record{fatal(1, "GPU-1", "79"), change(fatal(2, "GPU-2", "79"), cleared)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var s Set
			for _, r := range tc.records {
				s.FoldStored(r, here)
			}
			if s.Faults() != tc.want || len(s.Notices) > 0 {
				t.Errorf("%d faults stand and %d notices wait, want %d and none", s.Faults(), len(s.Notices), tc.want)
			}
		})
	}
}

// TestStoredPreservesUnknownFields: a fault that a store has lost is replayed with what
// this version does not know of it, also from the file of the set.
func TestStoredPreservesUnknownFields(t *testing.T) {
	r := change(fatal(1, "GPU-1", "79"), func(r *record.Record) {
		r.Event.RecommendedAction, r.MinVersion, r.Event.Unread = "NEWER_ACTION", 7, []byte{0x98, 0x06, 0x01}
		r.Extra = &extra.Extra{Fields: map[string]any{"newer": "x"}}
		r.Event.Extra = &extra.Extra{Fields: map[string]any{"newer": []any{"y"}}}
	})
	set := &Set{}
	set.Fold(r)
	text, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	var read Set
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	for how, s := range map[string]*Set{"in memory": set, "from its file": &read} {
		got := s.Stored([]string{r.ID})
		if len(got) != 1 {
			t.Fatalf("%s: %d records", how, len(got))
		}
		g := got[0]
		if diff := cmp.Diff([]any{r.MinVersion, r.Extra, r.Event.Extra, r.Event.Unread, r.Event.RecommendedAction},
			[]any{g.MinVersion, g.Extra, g.Event.Extra, g.Event.Unread, g.Event.RecommendedAction}); diff != "" {
			t.Errorf("%s (-told +told again):\n%s", how, diff)
		}
	}
}
