package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

func wantResults(t *testing.T, s store.Store, records []record.Record, want ...store.AppendResult) {
	t.Helper()
	got, err := s.Append(within(t), records)
	if err != nil {
		t.Fatalf("appending: %v", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("results (-want +got):\n%s", diff)
	}
}

func appendTwice(t *testing.T, b Backend) {
	_, s := database(t, b)
	a, other := Record("n"), Record("n")
	changed := a
	changed.Event.Message = "another"
	wantResults(t, s, []record.Record{a, a, changed}, store.Appended, store.Duplicate, store.Refused)
	first := MustGet(t, s, a.ID)
	later := a
	// What is not the event does not make it another event.
	later.CreatedAt, later.Node.BootID = a.CreatedAt.Add(time.Hour), "another boot"
	wantResults(t, s, []record.Record{changed, later, other, a}, store.Refused, store.Duplicate, store.Appended, store.Duplicate)
	finishRecord(t, s, other.ID)
	wantResults(t, s, []record.Record{other}, store.Duplicate)
	if diff := cmp.Diff(first, MustGet(t, s, a.ID)); diff != "" {
		t.Errorf("the stored record changed (-first +now):\n%s", diff)
	}
	if got := MustGet(t, s, other.ID); got.Reason() != record.NoRuleMatched {
		t.Errorf("a repeated append took the verdict back: %+v", got.Status)
	}
}

// appendForeignID: a store that lost records may receive their ids again from another node. The
// node's own record is stored all the same, once, and found by its id; what the other node
// stored is no record of it.
func appendForeignID(t *testing.T, b Backend) {
	_, s := database(t, b)
	own, other := Record("n"), Record("m")
	theirs := Record("m", func(r *record.Record) { r.ID, r.Event.ID = own.ID, own.ID })
	wantResults(t, s, []record.Record{theirs}, store.Appended)
	if r, err := store.FindOf(within(t), s, "n", own.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a record of node %q was found for node n: %v", r.Event.NodeName, err)
	}
	wantResults(t, s, []record.Record{own, other}, store.Appended, store.Appended)
	changed := own
	changed.Event.Message = "another"
	wantResults(t, s, []record.Record{own, changed, theirs}, store.Duplicate, store.Refused, store.Duplicate)
	for node, want := range map[string]record.Record{"n": own, "m": theirs} {
		got, err := store.FindOf(within(t), s, node, own.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got.Event.NodeName != node || !record.SameID(node, got.ID, own.ID) || got.ID != got.Event.ID || record.Content(got) != record.Content(want) {
			t.Errorf("of node %s: %s of node %s with content %s", node, got.ID, got.Event.NodeName, record.Content(got))
		}
		again, err := store.FindOf(within(t), s, node, got.ID)
		if err != nil || again.ID != got.ID {
			t.Errorf("by the id that it is stored under: %s, %v", again.ID, err)
		}
	}
	if list, err := s.List(within(t), store.Query{}); err != nil || len(list) != 3 {
		t.Errorf("%d records, %v", len(list), err)
	}
}

// appendTransformed: what counts is the event as it was accepted; a pipeline may
// make something else of it the next time.
func appendTransformed(t *testing.T, b Backend) {
	_, s := database(t, b)
	accepted := Record("n")
	once, again, other := accepted, accepted, accepted
	once.Event.Message, once.Accepted = "as the rules said", record.Digest(accepted.Event)
	again.Event.Message, again.Accepted = "as the new rules say", record.Digest(accepted.Event)
	other.Accepted = record.Digest(once.Event)
	wantResults(t, s, []record.Record{once}, store.Appended)
	wantResults(t, s, []record.Record{again, accepted, other}, store.Duplicate, store.Duplicate, store.Refused)
	if got := MustGet(t, s, once.ID); got.Event.Message != once.Event.Message || got.Accepted != once.Accepted {
		t.Errorf("read back %q, %q", got.Event.Message, got.Accepted)
	}
}

func appendConcurrently(t *testing.T, b Backend) {
	dsn := b.New(t)
	var stores []store.Store
	for range 4 {
		stores = append(stores, Open(t, dsn, storeopen.Options{}))
	}
	rounds, each := 3, 100
	if b.Slow {
		each = 40
	}
	counts, repeats := map[store.AppendResult]int{}, 0
	for round := range rounds {
		records := faults(each)
		var mu sync.Mutex
		var writers sync.WaitGroup
		start := make(chan struct{})
		for w := range 2 * len(stores) {
			// Every writer in another order.
			mine := slices.Clone(records)
			rand.New(rand.NewPCG(uint64(round), uint64(w))).Shuffle(each, func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
			writers.Go(func() {
				<-start
				got, again := appendAtLength(t, stores[w%len(stores)], mine)
				mu.Lock()
				defer mu.Unlock()
				repeats += again
				for _, r := range got {
					counts[r]++
				}
			})
		}
		close(start)
		writers.Wait()
	}
	want := map[store.AppendResult]int{store.Appended: rounds * each, store.Duplicate: rounds * each * (2*len(stores) - 1)}
	stored, err := stores[0].List(within(t), store.Query{})
	if err != nil || len(stored) != rounds*each {
		t.Errorf("%d records are stored, %v; want %d", len(stored), err, rounds*each)
	}
	if lost := want[store.Appended] - counts[store.Appended]; repeats > 0 && lost > 0 {
		want[store.Appended], want[store.Duplicate] = want[store.Appended]-lost, want[store.Duplicate]+lost // with the answer of a commit
	}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
}

// appendAtLength appends again as long as the turn to write does not come
// within the time of one call, as on a busy machine, and returns how often.
func appendAtLength(t *testing.T, s store.Store, records []record.Record) (got []store.AppendResult, again int) {
	ctx := within(t)
	got, err := s.Append(ctx, records)
	for ; ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded); again++ {
		got, err = s.Append(ctx, records)
	}
	if err != nil {
		t.Errorf("appending: %v", err)
	}
	return got, again
}

func appendAfterCut(t *testing.T, b Backend) {
	dsn, plain := database(t, b)
	s, arm := b.Interrupt(t, dsn)
	for _, before := range []bool{true, false} {
		records := faults(3)
		arm(before)
		_, err := s.Append(within(t), records)
		if err == nil && !b.Repeats {
			t.Fatalf("before=%v: a broken append reports success", before)
		}
		want := store.Duplicate
		if before && err != nil {
			want = store.Appended
		}
		wantResults(t, s, records, want, want, want)
		got, err := plain.List(within(t), store.Query{})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(got); n != 3 && before || n != 6 && !before {
			t.Errorf("before=%v: %d records are stored", before, n)
		}
	}
}

func appendKilled(t *testing.T, b Backend) {
	dsn, s := database(t, b)
	acknowledged := map[string]bool{}
	for round := range 5 {
		for _, line := range killAfter(t, dsn, "append", 3+4*round) {
			acknowledged[line] = true
		}
	}
	stored, err := s.List(within(t), store.Query{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range stored {
		delete(acknowledged, r.ID)
		r.Append, r.Revision = 0, 0
		wantResults(t, s, []record.Record{r}, store.Duplicate)
	}
	for id := range acknowledged {
		t.Errorf("record %s was acknowledged and is not there", id)
	}
}

func appendUnstorable(t *testing.T, b Backend) {
	_, s := database(t, b)
	good, zero, bytes, entry, none := Record("n"), Record("n"), Record("n"), Record("n"), Record("n")
	zero.Event.Message = "a\x00b"
	bytes.Event.NodeName = "n\xff"
	entry.Event.Metadata = map[string]string{"k\xc3": ""}
	none.ID = ""
	escaped := Record("n", func(r *record.Record) { r.Event.Message = `\u0000 \\u0000 \ufffd ` + "\ufffd" })
	late := Record("n", func(r *record.Record) { r.CreatedAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) })
	wantResults(t, s, []record.Record{zero, good, bytes, entry, none, escaped, late},
		store.Refused, store.Appended, store.Refused, store.Refused, store.Refused, store.Appended, store.Refused)
	if diff := cmp.Diff(escaped.Event, MustGet(t, s, escaped.ID).Event); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
}

func appendStatus(t *testing.T, b Backend) {
	_, s := database(t, b)
	r := Record("n")
	r.Status.NodeQuarantined = record.Quarantined
	if _, err := s.Append(within(t), []record.Record{Record("n"), r}); !errors.Is(err, record.ErrNotOwner) {
		t.Errorf("appending a status: %v, want ErrNotOwner", err)
	}
	got, err := s.List(within(t), store.Query{})
	if err != nil || len(got) != 0 {
		t.Errorf("%d records stored, %v; want none", len(got), err)
	}
}

func appendWorst(t *testing.T, b Backend) {
	_, s := database(t, b)
	r := WorstEvent("worst")
	MustAppend(t, s, r)
	wantResults(t, s, []record.Record{r}, store.Duplicate)
	got := MustGet(t, s, r.ID)
	r.Append = got.Append
	if diff := cmp.Diff(r, got); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	if record.Digest(got.Event) != record.Digest(r.Event) {
		t.Error("the digest changed in the store")
	}
	fed := Receive(t, openFeed(t, s, "c", record.AllHealthEventInserts()), 1)[0]
	if diff := cmp.Diff(got, fed); diff != "" {
		t.Errorf("from the feed (-stored +fed):\n%s", diff)
	}
	got = update(t, s, record.FaultQuarantine, r.ID, func(st *record.Status) { st.Session = r.ID })
	if diff := cmp.Diff(r.Event, got.Event); diff != "" {
		t.Errorf("after an update (-want +got):\n%s", diff)
	}
}

func readAbsent(t *testing.T, b Backend) {
	_, s := database(t, b)
	if _, err := s.Get(within(t), "absent"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("reading an absent record: %v, want ErrNotFound", err)
	}
	_, err := s.Update(within(t), record.FaultQuarantine, []store.Change{{ID: "absent"}})
	if !errors.Is(err, store.ErrNotFound) {
		t.Errorf("updating an absent record: %v, want ErrNotFound", err)
	}
	r := Record("n")
	MustAppend(t, s, r)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Get(ended, r.ID); err == nil || errors.Is(err, store.ErrNotFound) {
		t.Errorf("a read that failed: %v, want an error other than ErrNotFound", err)
	}
}

func openTogether(t *testing.T, b Backend) {
	dsn := b.New(t)
	var services sync.WaitGroup
	for i := range 12 {
		services.Go(func() {
			s, err := storeopen.Open(within(t), dsn, storeopen.Options{SingleHost: true})
			if err != nil {
				t.Errorf("opening: %v", err)
				return
			}
			_, err = s.Append(within(t), []record.Record{Record(fmt.Sprint("n", i))})
			if err = errors.Join(err, s.Ping(within(t)), s.Close()); err != nil {
				t.Errorf("service %d: %v", i, err)
			}
		})
	}
	services.Wait()
	got, err := Open(t, dsn, storeopen.Options{}).List(within(t), store.Query{})
	if err != nil || len(got) != 12 {
		t.Errorf("%d records, %v; want 12", len(got), err)
	}
}

func expire(t *testing.T, b Backend) {
	_, s := database(t, b)
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	at := func(d time.Duration) func(*record.Record) {
		return func(r *record.Record) {
			when := now.Add(d)
			r.Event.ProcessingStrategy, r.ExpireAt = record.PersistOnly, &when
		}
	}
	gone, kept, never := Record("n", at(-time.Microsecond)), Record("n", at(0)), Record("n")
	MustAppend(t, s, gone, kept, never)
	if n, err := s.Expire(within(t), now); n != 1 || err != nil {
		t.Errorf("expired %d, %v; want 1", n, err)
	}
	got, err := s.List(within(t), store.Query{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{kept.ID, never.ID}, ids(got)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

// expireBehind: records that expire while a consumer is away are there when it
// comes back, unless it stays away for longer than the grace.
func expireBehind(t *testing.T, b Backend) {
	dsn, s := database(t, b)
	passed, behind := Record("n"), Record("n")
	expiry := time.Now().Add(-time.Minute).UTC().Truncate(time.Microsecond)
	for _, r := range []*record.Record{&passed, &behind} {
		r.Event.ProcessingStrategy, r.ExpireAt = record.PersistOnly, &expiry
	}
	MustAppend(t, s, passed)
	Receive(t, openFeed(t, s, "exporter", record.AllHealthEventInserts()), 1)
	MustAppend(t, s, behind)
	count := func(now time.Time, want int) {
		t.Helper()
		if n, err := s.Expire(within(t), now); n != want || err != nil {
			t.Errorf("expired %d, %v; want %d", n, err, want)
		}
	}
	soon := time.Now().Add(time.Hour)
	count(soon, 1)
	if got := Receive(t, openFeed(t, s, "exporter", record.AllHealthEventInserts()), 1)[0]; got.ID != behind.ID {
		t.Errorf("fed %s, want the expired record that waited: %s", got.ID, behind.ID)
	}
	count(soon, 1)
	again := Record("n", func(r *record.Record) { r.Event.ProcessingStrategy, r.ExpireAt = record.PersistOnly, &expiry })
	MustAppend(t, s, again)
	count(soon, 0)
	b.Damage(t, dsn, "exporter", Damage{Position: "garbage", Mark: true})
	count(soon, 0)
	count(expiry.Add(store.ExpireGrace+time.Second), 1)
}

// appendTo: a store identifies its server, and rejects records for another one.
func appendTo(t *testing.T, b Backend) {
	_, s := database(t, b)
	known, ok := s.(store.Identified)
	if !ok {
		t.Fatalf("a %T cannot tell servers apart", s)
	}
	records := faults(2)
	results, server, err := known.AppendTo(within(t), "", records[:1])
	if err != nil || len(results) != 1 || server == "" {
		t.Fatalf("to any server: %v, %q, %v", results, server, err)
	}
	if same, err := known.Server(within(t)); same != server || err != nil {
		t.Errorf("it is %q, %v; it appended to %q", same, err, server)
	}
	for _, batch := range [][]record.Record{records, nil} {
		if results, now, err := known.AppendTo(within(t), "another", batch); !errors.Is(err, store.ErrMoved) || now != server || results != nil {
			t.Errorf("%d records to another server: %v, %q, %v", len(batch), results, now, err)
		}
	}
	if _, err := s.Get(within(t), records[1].ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("for another server it took a record: %v", err)
	}
	results, now, err := known.AppendTo(within(t), server, records)
	if want := []store.AppendResult{store.Duplicate, store.Appended}; !slices.Equal(results, want) || now != server || err != nil {
		t.Errorf("to the same server: %v, %q, %v", results, now, err)
	}
	if _, now, err := known.AppendTo(within(t), server, nil); now != server || err != nil {
		t.Errorf("nothing to the same server: %q, %v", now, err)
	}
}
