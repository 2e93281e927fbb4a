package storetest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// damages are the ways to lose a position; those that keep the mark first.
func damages() []Damage {
	positions := []struct{ name, position string }{
		{"gone", ""},
		{"garbage", "\x01 not a position"},
		{"of an older format", `{"v":0,"s":"x"}`},
		{"of another server", Elsewhere},
		{"after the end of the store", Beyond},
	}
	var out []Damage
	for _, mark := range []bool{false, true} {
		for _, p := range positions {
			name := "position " + p.name
			if mark {
				name += ", mark lost"
			}
			out = append(out, Damage{Name: name, Position: p.position, Mark: mark})
		}
	}
	return out
}

// feedLostPosition: with the mark everything stored since comes again (here:
// everything, the margin is minutes); without it everything unfinished.
func feedLostPosition(t *testing.T, b Backend) {
	dsn, s := database(t, b)
	read, unread, finished := faults(2), faults(2), faults(2)
	MustAppend(t, s, slices.Concat(read, finished)...)
	for _, r := range finished {
		finishRecord(t, s, r.ID)
	}
	for _, sel := range []record.Selector{record.ProcessableHealthEventInserts(), everyChange()} {
		for _, d := range damages() {
			consumer := sel.Name + " " + d.Name
			Receive(t, openFeed(t, s, consumer, sel), 4)
		}
	}
	MustAppend(t, s, unread...)
	for _, sel := range []record.Selector{record.ProcessableHealthEventInserts(), everyChange()} {
		for _, d := range damages() {
			consumer := sel.Name + " " + d.Name
			b.Damage(t, dsn, consumer, d)
			want := slices.Concat(ids(read), ids(unread))
			if !d.Mark {
				want = append(want, ids(finished)...)
			}
			registry := prometheus.NewRegistry()
			again := Open(t, dsn, storeopen.Options{Registerer: registry})
			got := ids(Receive(t, openFeed(t, again, consumer, sel), len(want)))
			slices.Sort(want)
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", consumer, diff)
			}
			if n := counted(t, registry, "nvsentinel_store_feed_rescans_total"); n != 1 {
				t.Errorf("%s: %v rescans counted, want 1", consumer, n)
			}
			settledAfterRescan(t, again, consumer, sel)
		}
	}
}

// settledAfterRescan: the committed rescan is not repeated.
func settledAfterRescan(t *testing.T, s store.Store, consumer string, sel record.Selector) {
	t.Helper()
	// A record of no other consumer's interest, finished at once for the rest.
	next := Record("n", func(r *record.Record) { r.Event.Message = consumer })
	MustAppend(t, s, next)
	f := openFeed(t, s, consumer, sel)
	if got := Receive(t, f, 1)[0]; got.ID != next.ID {
		t.Errorf("%s: after the rescan the feed gives %s, want the next record", consumer, got.ID)
	}
	deleteRecord(t, s, next)
}

// deleteRecord expires a record, so that cases that follow do not meet it.
func deleteRecord(t *testing.T, s store.Store, r record.Record) {
	t.Helper()
	now := MustGet(t, s, r.ID)
	at := now.CreatedAt
	now.Status.QuarantineVerdict = &record.Verdict{Reason: record.NoRuleMatched}
	change := store.Change{ID: r.ID, Revision: now.Revision, Status: now.Status, ExpireAt: &at}
	if _, err := s.Update(within(t), record.FaultQuarantine, []store.Change{change}); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Expire(within(t), at.Add(store.ExpireGrace+time.Second)); n != 1 || err != nil {
		t.Fatalf("expired %d, %v; want 1", n, err)
	}
}

// counted sums the values of a counter.
func counted(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), name) {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// feedRescanInterrupted stops the consumer within a rescan: what was committed
// does not come again, the rest does.
func feedRescanInterrupted(t *testing.T, b Backend) {
	dsn, s := database(t, b)
	records := faults(6)
	MustAppend(t, s, records...)
	sel := record.ProcessableHealthEventInserts()
	for stop := range 6 {
		for _, mark := range []bool{false, true} {
			consumer := strings.Repeat("x", stop+1)
			if mark {
				consumer += "m"
			}
			Receive(t, openFeed(t, s, consumer, sel), 6)
			b.Damage(t, dsn, consumer, Damage{Position: Elsewhere, Mark: mark})
			got := ids(Receive(t, openFeed(t, s, consumer, sel), stop))
			got = append(got, ids(Receive(t, openFeed(t, s, consumer, sel), 6-stop))...)
			if diff := cmp.Diff(ids(records), got); diff != "" {
				t.Errorf("stopped after %d, mark lost %v (-want +got):\n%s", stop, mark, diff)
			}
		}
	}
}
