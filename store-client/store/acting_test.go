package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// recordingStore is a store that remembers what it was asked for.
type recordingStore struct {
	store.Store
	selector record.Selector
}

func (r *recordingStore) List(_ context.Context, q store.Query) ([]record.Record, error) {
	r.selector = q.Selector
	return nil, nil
}

func (r *recordingStore) Feed(_ context.Context, _ string, s record.Selector) (store.Feed, error) {
	r.selector = s
	return nil, nil
}

func (r *recordingStore) Begin(_ context.Context, _ string, s record.Selector, _ time.Time) (bool, error) {
	r.selector = s
	return false, nil
}

// TestActing: whatever is asked for, PROCESS records are answered as without Acting,
// and PERSIST_ONLY ones not at all; named selectors stay what they are.
func TestActing(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 79))
	named := []record.Selector{record.ProcessableHealthEventInserts(), record.NodeQuarantineStatus(), record.QuarantinedAndDrainedNodes(), record.BacklogOfNode("n")}
	selectors := append([]record.Selector{{}, {Strategy: record.PersistOnly}, record.AllHealthEventInserts(), record.OpenOfNode("")}, named...)
	for range 100 {
		selectors = append(selectors, storetest.GenerateSelector(rng))
	}
	var records []record.Record
	for range 200 {
		records = append(records, storetest.Generate(rng))
	}
	inner := &recordingStore{}
	acting := store.Acting(inner)
	for how, ask := range map[string]func(record.Selector) error{
		"list": func(s record.Selector) error {
			_, err := acting.List(t.Context(), store.Query{Selector: s})
			return err
		},
		"feed":  func(s record.Selector) error { _, err := acting.Feed(t.Context(), "c", s); return err },
		"begin": func(s record.Selector) error { _, err := acting.Begin(t.Context(), "c", s, time.Time{}); return err },
	} {
		for _, s := range selectors {
			if err := ask(s); err != nil {
				t.Fatal(err)
			}
			got := inner.selector
			if got.Name != s.Name || got.InsertsOnly != s.InsertsOnly {
				t.Errorf("%s: %q became %q", how, s.Name, got.Name)
			}
			for _, r := range records {
				if got.Matches(r) != (r.Acts() && s.Matches(r)) {
					t.Errorf("%s of %s: record with strategy %q: %v", how, fmt.Sprintf("%+v", s), r.Event.ProcessingStrategy, got.Matches(r))
				}
			}
		}
	}
	for _, s := range named {
		if _, err := acting.Feed(t.Context(), "c", s); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s, inner.selector); diff != "" {
			t.Errorf("%s (-named +asked):\n%s", s.Name, diff)
		}
	}
}
