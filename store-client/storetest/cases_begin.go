package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// feedBegun places consumers at different times of a history: what was stored
// before comes only as far as it is not finished, everything later comes, and
// a place that is taken stays, over restarts too.
func feedBegun(t *testing.T, b Backend) {
	dsn, s := database(t, b)
	old, finished, later := faults(2), faults(2), faults(2)
	MustAppend(t, s, old...)
	MustAppend(t, s, finished...)
	for _, r := range finished {
		finishRecord(t, s, r.ID)
	}
	sel := record.AllHealthEventInserts()
	// A rescan begins some minutes before: that is before everything here.
	begin := func(consumer string, since time.Time, first bool) {
		t.Helper()
		if got, err := s.Begin(within(t), consumer, sel, since); err != nil || got != first {
			t.Fatalf("beginning %s: %v, %v; want %v", consumer, got, err, first)
		}
	}
	hour := time.Now().Add(time.Hour)
	begin("from now", time.Now(), true)
	begin("from later", hour, true)
	begin("from later", time.Now(), false)
	MustAppend(t, s, later...)
	for consumer, want := range map[string][]record.Record{
		"from now":   slices.Concat(old, finished, later),
		"from later": slices.Concat(old, later),
	} {
		got := ids(Receive(t, openFeed(t, s, consumer, sel), 1))
		// The rest comes to a process that starts where the first one ended.
		got = append(got, ids(Receive(t, openFeed(t, Open(t, dsn, storeopen.Options{}), consumer, sel), len(want)-1))...)
		if diff := cmp.Diff(ids(want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", consumer, diff)
		}
		begin(consumer, hour, false)
	}
}
