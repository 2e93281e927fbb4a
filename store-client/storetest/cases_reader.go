package storetest

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// Reader opens a store for looking until the test ends.
func Reader(t testing.TB, dsn string) store.Reader {
	t.Helper()
	r, err := storeopen.OpenReader(within(t), dsn, storeopen.Options{})
	if err != nil {
		t.Fatalf("opening the store for reading: %v", err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("closing the reader: %v", err)
		}
	})
	return r
}

// reader opens a database for looking in the backend's way.
func (b Backend) reader(t testing.TB, dsn string) store.Reader {
	if b.OpenReader == nil {
		return Reader(t, dsn)
	}
	return b.OpenReader(t, dsn)
}

// readerView is a store that is read in the backend's way.
func (b Backend) readerView(t testing.TB, dsn string, s store.Store) store.Store {
	if b.OpenReader == nil {
		return s
	}
	return through{s, b.OpenReader(t, dsn)}
}

// through writes in one way and reads in another.
type through struct {
	store.Store
	reader store.Reader
}

// Get implements store.Store.
func (t through) Get(ctx context.Context, id string) (record.Record, error) {
	return t.reader.Get(ctx, id)
}

// List implements store.Store.
func (t through) List(ctx context.Context, q store.Query) ([]record.Record, error) {
	return t.reader.List(ctx, q)
}

// DeadLetters implements store.Store.
func (t through) DeadLetters(ctx context.Context, source string) ([]store.DeadLetter, error) {
	return t.reader.DeadLetters(ctx, source)
}

// Ping implements store.Store.
func (t through) Ping(ctx context.Context) error { return t.reader.Ping(ctx) }

func listNewest(t *testing.T, b Backend) {
	_, s := database(t, b)
	records := faults(5)
	slices.Reverse(records) // append order is not id order
	MustAppend(t, s, records...)
	MustAppend(t, s, Record("another"))
	query := store.Query{Selector: record.Selector{Node: "n"}, Order: store.ByAppendDescending, Limit: 3}
	got, err := s.List(within(t), query)
	if err != nil || len(got) != 3 {
		t.Fatalf("%d records, %v", len(got), err)
	}
	query.After = got[2].Append
	older, err := s.List(within(t), query)
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, older...)
	slices.Reverse(got)
	if diff := cmp.Diff(ids(records), ids(got)); diff != "" {
		t.Errorf("the newest three and the page before them (-want +got):\n%s", diff)
	}
}

// largeDeadLetters: their bodies are bounded together, and the newest are read.
func largeDeadLetters(t *testing.T, b Backend) {
	dsn, s := database(t, b)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range 6 {
		l := store.DeadLetter{ID: strconv.Itoa(i), Source: "large", Body: make([]byte, store.PageBytes/4), At: at.Add(-time.Duration(i) * time.Minute)}
		if err := s.Dead(within(t), l); err != nil {
			t.Fatal(err)
		}
	}
	for name, read := range map[string]func(context.Context, string) ([]store.DeadLetter, error){"store": s.DeadLetters, "reader": b.reader(t, dsn).DeadLetters} {
		got, err := read(within(t), "large")
		if err != nil || len(got) != 4 || got[0].ID != "0" || got[3].ID != "3" {
			t.Errorf("the %s reads %d, %v; want the newest four", name, len(got), err)
		}
	}
}

// readerWrites: whatever a reader's connections are asked, they do not write.
func readerWrites(t *testing.T, b Backend) {
	dsn, s := database(t, b)
	r := Record("n")
	MustAppend(t, s, r)
	before := MustGet(t, s, r.ID)
	reader := b.reader(t, dsn)
	got, err := reader.Get(within(t), r.ID)
	if diff := cmp.Diff(before, got); diff != "" || err != nil {
		t.Errorf("read %v (-want +got):\n%s", err, diff)
	}
	// The provider's reader has the port's writing methods too.
	writer, ok := reader.(store.Store)
	if !ok {
		return
	}
	if _, err := writer.Append(within(t), faults(1)); err == nil {
		t.Error("a reader appended")
	}
	changed := before.Status
	changed.UserPodsEvictionStatus.Status = record.EvictionInProgress
	if _, err := writer.Update(within(t), record.NodeDrainer, []store.Change{{ID: r.ID, Revision: before.Revision, Status: changed}}); err == nil {
		t.Error("a reader updated")
	}
	if _, err := writer.Expire(within(t), time.Now().AddDate(100, 0, 0)); err == nil {
		t.Error("a reader expired")
	}
	if diff := cmp.Diff(before, MustGet(t, s, r.ID)); diff != "" {
		t.Errorf("the record changed (-before +after):\n%s", diff)
	}
	if list, err := s.List(within(t), store.Query{}); len(list) != 1 || err != nil {
		t.Errorf("%d records, %v; want 1", len(list), err)
	}
}

// readerEmpty: a reader refuses a database without tables and makes none.
func readerEmpty(t *testing.T, b Backend) {
	dsn := b.New(t)
	for range 2 {
		if r, err := storeopen.OpenReader(within(t), dsn, storeopen.Options{}); err == nil {
			t.Errorf("an empty database was opened for reading: %v", r.Close())
		}
	}
}

func readerLag(t *testing.T, b Backend) {
	dsn, s := database(t, b)
	inserts := record.ProcessableHealthEventInserts()
	reader := b.reader(t, dsn)
	lag := func(consumer string, sel record.Selector, limit, pending int) store.Lag {
		t.Helper()
		return lagOf(t, reader, consumer, sel, limit, pending)
	}
	if got := lag("c", inserts, 10, 0); !got.Oldest.IsZero() || got.Lost != "" {
		t.Errorf("empty store: %+v", got)
	}
	began := time.Now()
	MustAppend(t, s, append(faults(3), Record("n", func(r *record.Record) { r.Event.ProcessingStrategy = record.PersistOnly }))...)
	if got := lag("c", inserts, 10, 3); got.Oldest.Before(began.Add(-time.Minute)) || got.Oldest.After(time.Now().Add(time.Minute)) {
		t.Errorf("the oldest waits since %s, want about %s", got.Oldest, began)
	}
	lag("c", inserts, 2, 2)
	if list, err := reader.Consumers(within(t)); len(list) != 0 || err != nil {
		t.Errorf("consumers %v, %v; want none before the first commit", list, err)
	}
	Receive(t, openFeed(t, s, "c", inserts), 2)
	lag("c", inserts, 10, 1)
	seen := Receive(t, openFeed(t, s, "every", everyChange()), 3)
	lag("every", everyChange(), 10, 0)
	finishRecord(t, s, seen[0].ID)
	lag("every", everyChange(), 10, 1)
	lag("c", inserts, 10, 1)
	list, err := reader.Consumers(within(t))
	if err != nil || len(list) != 2 || list[0].Name != "c" || list[1].Name != "every" {
		t.Fatalf("consumers %+v, %v; want c and every", list, err)
	}
	for _, c := range list {
		if c.Mark.IsZero() || c.CommittedAt.Before(began.Add(-time.Minute)) {
			t.Errorf("consumer %+v, want times about %s", c, began)
		}
	}
	b.Damage(t, dsn, "c", Damage{Position: "garbage"})
	if got := lag("c", inserts, 10, 3); got.Lost == "" {
		t.Errorf("a lost position is not told: %+v", got)
	}
}

// lagOf asks until the number waiting is as wanted: a transaction under way
// elsewhere in the server may hide the newest rows for a moment.
func lagOf(t *testing.T, reader store.Reader, consumer string, sel record.Selector, limit, pending int) store.Lag {
	t.Helper()
	ctx := within(t)
	for {
		got, err := reader.Lag(ctx, consumer, sel, limit)
		if err != nil {
			t.Fatalf("lag of %s: %v; last %+v, want %d pending", consumer, err, got, pending)
		}
		if got.Pending == pending {
			return got
		}
		if got.Pending > pending {
			t.Fatalf("lag of %s: %+v, want %d pending", consumer, got, pending)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("lag of %s: %+v, want %d pending", consumer, got, pending)
		}
	}
}
