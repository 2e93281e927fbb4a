package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// shelf holds records with Append 1 to its number; its pages end early.
type shelf struct {
	records int64
	cut     int
	fail    error
	queries int
}

func (s *shelf) List(_ context.Context, q store.Query) (page []record.Record, err error) {
	s.queries++
	for n := q.After + 1; n <= s.records && len(page) < min(s.cut, q.Limit); n++ {
		page = append(page, record.Record{Append: n})
	}
	*q.More = len(page) == min(s.cut, q.Limit)
	return page, s.fail
}

func TestPages(t *testing.T) {
	away := errors.New("away")
	for name, tt := range map[string]struct {
		shelf shelf
		stop  int
		want  []int
		asked int
		err   error
	}{
		"empty":                     {shelf{0, 10, nil, 0}, 0, nil, 1, nil},
		"a short page that is last": {shelf{3, 10, nil, 0}, 0, []int{3}, 1, nil},
		"pages cut by bytes":        {shelf{7, 3, nil, 0}, 0, []int{3, 3, 1}, 3, nil},
		"the last page is full":     {shelf{6, 3, nil, 0}, 0, []int{3, 3}, 3, nil},
		"enough":                    {shelf{9, 3, nil, 0}, 2, []int{3, 3}, 2, nil},
		"the store is away":         {shelf{9, 3, away, 0}, 0, nil, 1, away},
		"limits count beside bytes": {shelf{9, 100, nil, 0}, 0, []int{5, 4}, 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []int
			err := store.Pages(t.Context(), &tt.shelf, store.Query{Limit: 5}, func(page []record.Record) error {
				if got = append(got, len(page)); len(got) == tt.stop {
					return store.Enough
				}
				return nil
			})
			if !errors.Is(err, tt.err) || tt.err == nil && err != nil || tt.shelf.queries != tt.asked {
				t.Errorf("%v after %d queries, want %v after %d", err, tt.shelf.queries, tt.err, tt.asked)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("pages (-want +got):\n%s", diff)
			}
		})
	}
	for _, q := range []store.Query{{Limit: 5, Order: store.BySeqDescending}} {
		if err := store.Pages(t.Context(), &shelf{}, q, nil); err == nil {
			t.Errorf("%+v was paged", q)
		}
	}
}
