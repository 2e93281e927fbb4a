package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

func listPages(t *testing.T, b Backend) {
	_, s := database(t, b)
	records := faults(25)
	slices.Reverse(records) // append order is not id order
	MustAppend(t, s, records[:10]...)
	MustAppend(t, s, records[10:]...)
	var got []record.Record
	for after := int64(0); ; {
		page, err := s.List(within(t), store.Query{Selector: record.BacklogOfNode("n"), After: after, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		got, after = append(got, page...), page[len(page)-1].Append
	}
	if diff := cmp.Diff(ids(records), ids(got)); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
	for i, r := range got {
		if r.Append <= 0 || i > 0 && r.Append <= got[i-1].Append {
			t.Errorf("append order %d of record %d does not grow", r.Append, i)
		}
	}
}

// listExcept: what is left out counts for no page.
func listExcept(t *testing.T, b Backend) {
	_, s := database(t, b)
	records := faults(5)
	MustAppend(t, s, records...)
	for _, order := range []store.Order{store.ByAppend, store.ByAppendDescending, store.BySeqDescending} {
		got, err := s.List(within(t), store.Query{
			Selector: record.BacklogOfNode("n"), Order: order, Limit: 3, Except: []string{records[1].ID, records[3].ID, "no such record"},
		})
		want := []string{records[0].ID, records[2].ID, records[4].ID}
		have := ids(got)
		slices.Sort(want)
		slices.Sort(have)
		if diff := cmp.Diff(want, have); diff != "" || err != nil {
			t.Errorf("in order %d: %v (-want +got):\n%s", order, err, diff)
		}
	}
}

func deadLetters(t *testing.T, b Backend) {
	dsn, s := database(t, b)
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC)
	letter := func(source, id, reason string, after time.Duration) store.DeadLetter {
		return store.DeadLetter{ID: id, Source: source, Reason: reason, Body: []byte("\x00{" + reason), At: at.Add(after)}
	}
	for _, l := range []store.DeadLetter{
		letter("one", "a", "first", 0), letter("one", "b", "other", time.Minute), letter("two", "a", "foreign", 0),
		letter("one", "a", "again", time.Hour),
	} {
		if err := s.Dead(within(t), l); err != nil {
			t.Fatal(err)
		}
	}
	want := []store.DeadLetter{letter("one", "a", "again", time.Hour), letter("one", "b", "other", time.Minute)}
	for name, read := range map[string]func(context.Context, string) ([]store.DeadLetter, error){"store": s.DeadLetters, "reader": b.reader(t, dsn).DeadLetters} {
		got, err := read(within(t), "one")
		if diff := cmp.Diff(want, got, cmpopts.EquateApproxTime(0)); diff != "" || err != nil {
			t.Errorf("of the %s: %v (-want +got):\n%s", name, err, diff)
		}
		if none, err := read(within(t), "nobody"); len(none) > 0 || err != nil {
			t.Errorf("of the %s, for nobody: %v, %v", name, none, err)
		}
	}
}

// listBytes: large records end a page early, in both directions; a query that
// does not ask whether more follows gets all of them.
func listBytes(t *testing.T, b Backend) {
	_, s := database(t, b)
	records := faults(4)
	for i := 0; i < 4; i += 2 {
		records[i].Event.Message = strings.Repeat("x", store.PageBytes/2)
	}
	for _, r := range records {
		MustAppend(t, s, r)
	}
	for _, order := range []store.Order{store.ByAppend, store.ByAppendDescending} {
		want := slices.Clone(records)
		if order == store.ByAppendDescending {
			slices.Reverse(want)
		}
		query := store.Query{Selector: record.BacklogOfNode("n"), Order: order, Limit: 5}
		all, err := s.List(within(t), query)
		if err != nil || len(all) != 4 {
			t.Fatalf("%d records without asking for more, %v", len(all), err)
		}
		var got []record.Record
		var sizes []int
		err = store.Pages(within(t), s, query, func(page []record.Record) error {
			got, sizes = append(got, page...), append(sizes, len(page))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(ids(want), ids(got)); diff != "" {
			t.Errorf("pages of order %d (-want +got):\n%s", order, diff)
		}
		if order == store.ByAppend && (len(sizes) != 2 || sizes[0] != 3) {
			t.Errorf("pages of %v records, want two: the second large one ends the first", sizes)
		}
	}
}

func listByCounter(t *testing.T, b Backend) {
	_, s := database(t, b)
	var records []record.Record
	for _, seq := range []uint64{9, 10, 1 << 63, 1<<63 - 1, 0, 1<<64 - 1, 10} {
		records = append(records, Record("n", func(r *record.Record) { r.Seq, r.SeqEpoch = seq, "e" }))
	}
	MustAppend(t, s, records...)
	MustAppend(t, s, Record("n", func(r *record.Record) { r.Seq, r.SeqEpoch = 11, "another" }))
	got, err := s.List(within(t), store.Query{Selector: record.Selector{SeqEpoch: "e"}, Order: store.BySeqDescending, Limit: 6})
	if err != nil {
		t.Fatal(err)
	}
	var seqs []uint64
	for _, r := range got {
		seqs = append(seqs, r.Seq)
	}
	if diff := cmp.Diff([]uint64{1<<64 - 1, 1 << 63, 1<<63 - 1, 10, 10, 9}, seqs); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
	if got[3].Append < got[4].Append {
		t.Error("of equal counters the later append does not come first")
	}
}

// selectors compares the meaning of generated selectors, and of the named
// ones, with what the store lists and feeds.
func selectors(t *testing.T, b Backend) {
	_, s := database(t, b)
	rng := rand.New(rand.NewPCG(20260102, 79))
	records, feeds := make([]record.Record, 200), 40
	if b.Slow {
		records, feeds = records[:80], 15
	}
	for i := range records {
		records[i] = Generate(rng)
	}
	stored := Seed(t, s, records...)
	tried := []record.Selector{
		{}, record.ProcessableHealthEventInserts(), record.ProcessableNonFatalUnhealthyInserts(), record.NodeQuarantineStatus(),
		record.QuarantinedAndDrainedNodes(), record.AllHealthEventInserts(), record.BacklogOfNode("node-a"), record.BacklogOfNode(""),
		record.OpenOfNode("node-b"), record.OpenOfNode(""), {Any: []record.Selector{{}}},
	}
	for range 400 {
		tried = append(tried, GenerateSelector(rng))
	}
	empty := 0
	for _, sel := range tried {
		var want []string
		for _, r := range stored {
			if sel.Matches(r) {
				want = append(want, r.ID)
			}
		}
		if len(want) == 0 {
			empty++
		}
		got, err := s.List(within(t), store.Query{Selector: sel})
		if err != nil {
			t.Fatalf("%+v: %v", sel, err)
		}
		if diff := cmp.Diff(want, ids(got)); diff != "" {
			t.Errorf("%+v lists (-meaning +store):\n%s", sel, diff)
		}
	}
	if empty > len(tried)/2 {
		t.Errorf("%d of %d selectors match nothing: the comparison says little", empty, len(tried))
	}
	for _, sel := range tried[:feeds] {
		feedEquals(t, s, sel, stored)
	}
}

// feedEquals reads a new consumer's feed to the end of what is stored.
func feedEquals(t *testing.T, s store.Store, sel record.Selector, stored []record.Record) {
	t.Helper()
	want := map[string]bool{}
	for _, r := range stored {
		if sel.Matches(r) {
			want[r.ID] = true
		}
	}
	f := openFeed(t, s, "selector", sel)
	for range len(want) {
		// No commit: the next selector starts at the beginning again.
		r, _, err := f.Next(within(t))
		if err != nil {
			t.Fatalf("%+v: %d records missing from the feed: %v", sel, len(want), err)
		}
		if !want[r.ID] {
			t.Errorf("%+v feeds %s, which does not match or came before", sel, r.ID)
		}
		delete(want, r.ID)
	}
}

// listPoisoned: what cannot be decoded is left out of every list and page, with
// one dead letter each, and takes nobody's place there.
func listPoisoned(t *testing.T, b Backend) {
	dsn := b.New(t)
	metrics := prometheus.NewRegistry()
	s, reader := Open(t, dsn, storeopen.Options{Registerer: metrics}), b.reader(t, dsn)
	records := faults(9)
	MustAppend(t, s, records...)
	var want, poisoned []string
	for i, r := range records {
		if i < 4 || i > 6 { // whole pages of two, at both ends
			b.Poison(t, dsn, r.ID)
			poisoned = append(poisoned, r.ID)
		} else {
			want = append(want, r.ID)
		}
	}
	slices.Sort(poisoned)
	for name, from := range map[string]interface {
		store.Lister
		Get(ctx context.Context, id string) (record.Record, error)
	}{"store": s, "reader": reader} {
		for _, order := range []store.Order{store.ByAppend, store.ByAppendDescending, store.BySeqDescending} {
			listsHealthy(t, fmt.Sprintf("the %s, order %d", name, order), from, order, want)
		}
		if _, err := from.Get(within(t), poisoned[0]); !errors.Is(err, store.ErrUndecodable) {
			t.Errorf("the %s, reading one: %v, want ErrUndecodable", name, err)
		}
	}
	letters, err := s.DeadLetters(within(t), store.Undecodable)
	var kept []string
	for _, l := range letters {
		kept = append(kept, l.ID)
		if len(l.Body) == 0 || l.Reason == "" {
			t.Errorf("dead letter %+v", l)
		}
	}
	slices.Sort(kept)
	if diff := cmp.Diff(poisoned, kept); diff != "" || err != nil {
		t.Errorf("dead letters: %v (-want +got):\n%s", err, diff)
	}
	counted := fmt.Sprintf(`# HELP nvsentinel_store_undecodable_records_total Stored documents that cannot be decoded and were skipped by a change feed or by a list (consumer list), by consumer. They become dead letters.
# TYPE nvsentinel_store_undecodable_records_total counter
nvsentinel_store_undecodable_records_total{consumer="list"} %d
`, len(poisoned))
	if err := testutil.GatherAndCompare(metrics, strings.NewReader(counted), "nvsentinel_store_undecodable_records_total"); err != nil {
		t.Errorf("each is counted once: %v", err)
	}
}

// listsHealthy lists in one piece, the first alone, and page by page.
func listsHealthy(t *testing.T, name string, from store.Lister, order store.Order, want []string) {
	t.Helper()
	if order != store.ByAppend {
		want = slices.Clone(want)
		slices.Reverse(want)
	}
	query := store.Query{Selector: record.BacklogOfNode("n"), Order: order}
	all, err := from.List(within(t), query)
	if diff := cmp.Diff(want, ids(all)); diff != "" || err != nil {
		t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
	}
	query.Limit = 1
	first, err := from.List(within(t), query)
	if diff := cmp.Diff(want[:1], ids(first)); diff != "" || err != nil {
		t.Errorf("%s, the first: %v (-want +got):\n%s", name, err, diff)
	}
	if order == store.BySeqDescending {
		return
	}
	var paged []string
	query.Limit = 2
	err = store.Pages(within(t), from, query, func(page []record.Record) error {
		paged = append(paged, ids(page)...)
		return nil
	})
	if diff := cmp.Diff(want, paged); diff != "" || err != nil {
		t.Errorf("%s, in pages: %v (-want +got):\n%s", name, err, diff)
	}
}

func feedPoisoned(t *testing.T, b Backend) {
	dsn, s := database(t, b)
	records := faults(3)
	MustAppend(t, s, records...)
	b.Poison(t, dsn, records[1].ID)
	got := Receive(t, openFeed(t, s, "c", record.ProcessableHealthEventInserts()), 2)
	if diff := cmp.Diff([]string{records[0].ID, records[2].ID}, ids(got)); diff != "" {
		t.Errorf("fed (-want +got):\n%s", diff)
	}
	// All that is left is undecodable: the feed goes on.
	b.Poison(t, dsn, records[0].ID)
	b.Poison(t, dsn, records[2].ID)
	f := openFeed(t, s, "another", record.ProcessableHealthEventInserts())
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if r, _, err := f.Next(short); !ended(short, err) {
		t.Errorf("fed %q, %v from undecodable records", r.ID, err)
	}
	last := Record("n")
	MustAppend(t, s, last)
	if got := Receive(t, f, 1); got[0].ID != last.ID {
		t.Errorf("fed %s after the undecodable records, want %s", got[0].ID, last.ID)
	}
}
