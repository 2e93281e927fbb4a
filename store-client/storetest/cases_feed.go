package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// everyChange follows all PROCESS records and their changes.
func everyChange() record.Selector {
	return record.Selector{Name: "everyChange", Strategy: record.Process}
}

func feedFirst(t *testing.T, b Backend) {
	_, s := database(t, b)
	records := faults(3)
	MustAppend(t, s, records...)
	finishRecord(t, s, records[1].ID)
	for _, sel := range []record.Selector{record.ProcessableHealthEventInserts(), everyChange()} {
		got := ids(Receive(t, openFeed(t, s, "first of "+sel.Name, sel), 3))
		slices.Sort(got)
		want := ids(records)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", sel.Name, diff)
		}
	}
}

func feedKinds(t *testing.T, b Backend) {
	_, s := database(t, b)
	once, again := openFeed(t, s, "once", record.ProcessableHealthEventInserts()), openFeed(t, s, "again", everyChange())
	a := Record("n")
	MustAppend(t, s, a)
	if got := [][]string{ids(Receive(t, once, 1)), ids(Receive(t, again, 1))}; got[0][0] != a.ID || got[1][0] != a.ID {
		t.Fatalf("fed %v, want %s twice", got, a.ID)
	}
	for n := range int64(3) {
		changed := update(t, s, record.NodeDrainer, a.ID, rewrite(fmt.Sprint(n)))
		if diff := cmp.Diff([]record.Record{changed}, Receive(t, again, 1)); diff != "" {
			t.Errorf("change %d (-stored +fed):\n%s", n, diff)
		}
	}
	next := Record("n")
	MustAppend(t, s, next)
	if got := ids(Receive(t, once, 1)); got[0] != next.ID {
		t.Errorf("fed %v, want the next insert only: %s", got, next.ID)
	}
}

// feedNeverBack: what changes between the opening of a feed and its first look
// comes as it is, and not afterwards as it was.
func feedNeverBack(t *testing.T, b Backend) {
	_, s := database(t, b)
	a, last := Record("n"), Record("n")
	MustAppend(t, s, a)
	f := openFeed(t, s, "first", everyChange())
	for n := range int64(3) {
		update(t, s, record.NodeDrainer, a.ID, rewrite(fmt.Sprint(n)))
	}
	MustAppend(t, s, last)
	var revision int64
	for {
		r := Receive(t, f, 1)[0]
		if r.ID == last.ID {
			break
		}
		if r.Revision < revision {
			t.Errorf("revision %d was fed after %d", r.Revision, revision)
		}
		revision = r.Revision
	}
	changed := update(t, s, record.NodeDrainer, a.ID, rewrite("4"))
	if diff := cmp.Diff([]record.Record{changed}, Receive(t, f, 1)); diff != "" {
		t.Errorf("a change after it (-stored +fed):\n%s", diff)
	}
}

func feedLateCommit(t *testing.T, b Backend) {
	for _, sel := range []record.Selector{record.ProcessableHealthEventInserts(), everyChange()} {
		dsn, s := database(t, b)
		f := openFeed(t, s, "c", sel)
		before, older, younger := Record("n"), Record("n"), Record("n")
		MustAppend(t, s, before)
		Receive(t, f, 1)
		commit := b.Late(t, dsn, older)
		var writer sync.WaitGroup
		writer.Go(func() { MustAppend(t, s, younger) })
		// Long enough for the younger one to be seen by a feed that would pass
		// the older.
		short, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		got := take(t, short, f)
		cancel()
		commit()
		writer.Wait()
		// A consumer that restarts from its position misses nothing either.
		got = append(got, ids(Receive(t, openFeed(t, s, "c", sel), 2-len(got)))...)
		slices.Sort(got)
		want := ids([]record.Record{older, younger})
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", sel.Name, diff)
		}
	}
}

// take receives and commits until ctx ends.
func take(t *testing.T, ctx context.Context, f store.Feed) []string {
	t.Helper()
	var got []string
	for {
		r, position, err := f.Next(ctx)
		if ended(ctx, err) {
			return got
		}
		if err == nil {
			err = f.Commit(within(t), position)
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r.ID)
	}
}

func feedManyWriters(t *testing.T, b Backend) {
	const writers, each = 4, 25
	dsn := b.New(t)
	var busy sync.WaitGroup
	for w := range writers {
		s := Open(t, dsn, storeopen.Options{})
		busy.Go(func() {
			for range each {
				r := Record(fmt.Sprint("n", w))
				MustAppend(t, s, r)
				finishRecord(t, s, r.ID)
			}
		})
	}
	s := Open(t, dsn, storeopen.Options{})
	got := ids(Receive(t, openFeed(t, s, "once", record.ProcessableHealthEventInserts()), writers*each))
	slices.Sort(got)
	if n := len(slices.Compact(got)); n != writers*each {
		t.Errorf("%d different inserts fed, want %d", n, writers*each)
	}
	last := map[string]bool{}
	f := openFeed(t, s, "again", everyChange())
	for len(last) < writers*each {
		if r := Receive(t, f, 1)[0]; r.Evaluated() {
			last[r.ID] = true
		}
	}
	busy.Wait()
}

// feedStopped stops the consumer after every number of delivered and of
// committed records.
func feedStopped(t *testing.T, b Backend) {
	_, s := database(t, b)
	records := faults(5)
	MustAppend(t, s, records...)
	finishRecord(t, s, records[1].ID)
	for _, sel := range []record.Selector{record.ProcessableHealthEventInserts(), everyChange()} {
		all := ids(Receive(t, openFeed(t, s, "all of "+sel.Name, sel), 5))
		for delivered := range 6 {
			for committed := range delivered + 1 {
				consumer := fmt.Sprint(sel.Name, delivered, committed)
				f := openFeed(t, s, consumer, sel)
				for n := range delivered {
					_, position, err := f.Next(within(t))
					if err == nil && n < committed {
						err = f.Commit(within(t), position)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				got := ids(Receive(t, openFeed(t, s, consumer, sel), 5-committed))
				if diff := cmp.Diff(all[committed:], got, equalEmpty); diff != "" {
					t.Errorf("%s, %d delivered, %d committed (-want +got):\n%s", sel.Name, delivered, committed, diff)
				}
			}
		}
	}
}

var equalEmpty = cmp.Transformer("slice", func(s []string) string { return fmt.Sprint(s) })

func feedKilled(t *testing.T, b Backend) {
	dsn, s := database(t, b)
	records := faults(40)
	MustAppend(t, s, records...)
	seen := map[string]bool{}
	// On a busy machine a consumer may be killed as idle before it has begun.
	for round, vain := 0, 0; len(seen) < len(records); round++ {
		if round > len(records) {
			t.Fatalf("%d of %d records seen after %d kills", len(seen), len(records), round)
		}
		before := len(seen)
		for _, id := range killAfter(t, dsn, "consume", 7) {
			seen[id] = true
		}
		if vain++; len(seen) > before {
			vain = 0
		}
		if vain == 10 {
			t.Fatalf("the consumer makes no progress after %d records", before)
		}
	}
}

// latePoll is a clock on which polls come much too late, and are counted.
type latePoll struct {
	clock.RealClock
	polls *atomic.Int64
}

func (l latePoll) NewTimer(d time.Duration) clock.Timer {
	if d < time.Second {
		return l.RealClock.NewTimer(d)
	}
	rung := make(chan time.Time, 1)
	return pollTimer{time.AfterFunc(20*time.Second, func() { l.polls.Add(1); rung <- time.Time{} }), rung}
}

// pollTimer is the timer of one poll.
type pollTimer struct {
	*time.Timer
	fired chan time.Time
}

func (p pollTimer) C() <-chan time.Time { return p.fired }

// feedWoken: what another process writes wakes the feed. A wake-up may come before
// the write can be seen, when the disk is slow for long: then a poll finds it,
// which must be the exception.
func feedWoken(t *testing.T, b Backend) {
	dsn, writer := database(t, b)
	var polls atomic.Int64
	f := openFeed(t, Open(t, dsn, storeopen.Options{Clock: latePoll{polls: &polls}}), "c", record.AllHealthEventInserts())
	for range 20 {
		if n := polls.Load(); n > 5 {
			t.Fatalf("%d records came by a poll", n)
		}
		r := Record("n")
		var other sync.WaitGroup
		other.Go(func() { MustAppend(t, writer, r) })
		if got := Receive(t, f, 1); got[0].ID != r.ID {
			t.Errorf("fed %s, want %s", got[0].ID, r.ID)
		}
		other.Wait()
	}
}

// feedOwn: a change by the feed's own consumer is delivered too, and delays nobody
// else's, which wakes it.
func feedOwn(t *testing.T, b Backend) {
	dsn, writer := database(t, b)
	var polls atomic.Int64
	woken := openFeed(t, Open(t, dsn, storeopen.Options{Clock: latePoll{polls: &polls}}), string(record.NodeDrainer), record.NodeQuarantineStatus())
	polling := openFeed(t, Open(t, dsn, storeopen.Options{}), string(record.NodeDrainer), record.NodeQuarantineStatus())
	until := func(f store.Feed, id string, revision int64) {
		for {
			if r := Receive(t, f, 1)[0]; r.ID == id && r.Revision == revision {
				return
			}
		}
	}
	for range 5 {
		r := Record("n")
		MustAppend(t, writer, r)
		update(t, writer, record.FaultQuarantine, r.ID, func(st *record.Status) { st.NodeQuarantined = record.Quarantined })
		until(woken, r.ID, 1)
		update(t, writer, record.NodeDrainer, r.ID, rewrite("own"))
		update(t, writer, record.FaultRemediation, r.ID, func(st *record.Status) { st.FaultRemediated = record.Yes() })
		until(woken, r.ID, 3)
		update(t, writer, record.NodeDrainer, r.ID, rewrite("last"))
		until(polling, r.ID, 4)
	}
	if n := polls.Load(); n > 5 {
		t.Errorf("%d changes of others came by a poll", n)
	}
}

func feedDeaf(t *testing.T, b Backend) {
	dsn, writer := database(t, b)
	polling := openFeed(t, Open(t, dsn, storeopen.Options{PollOnly: true}), "polling", record.ProcessableHealthEventInserts())
	listening := openFeed(t, Open(t, dsn, storeopen.Options{}), "listening", record.ProcessableHealthEventInserts())
	for range 2 {
		r := Record("n")
		if b.Deafen != nil {
			b.Deafen(t, dsn)
		}
		MustAppend(t, writer, r)
		if got := [][]string{ids(Receive(t, polling, 1)), ids(Receive(t, listening, 1))}; got[0][0] != r.ID || got[1][0] != r.ID {
			t.Errorf("fed %v, want %s twice", got, r.ID)
		}
	}
}

func feedCommitOrder(t *testing.T, b Backend) {
	_, s := database(t, b)
	records := faults(4)
	MustAppend(t, s, records...)
	f := openFeed(t, s, "c", record.ProcessableHealthEventInserts())
	var positions []string
	for range 3 {
		_, position, err := f.Next(within(t))
		if err != nil {
			t.Fatal(err)
		}
		positions = append(positions, position)
	}
	for _, i := range []int{1, 0, 2, 1, 0} {
		if err := f.Commit(within(t), positions[i]); err != nil {
			t.Fatal(err)
		}
	}
	if got := ids(Receive(t, openFeed(t, s, "c", record.ProcessableHealthEventInserts()), 1)); got[0] != records[3].ID {
		t.Errorf("resumed at %v, want the record after the furthest commit: %s", got, records[3].ID)
	}
	if err := f.Commit(within(t), "not a position"); err == nil {
		t.Error("a position that is none was committed")
	}
}

func feedPages(t *testing.T, b Backend) {
	_, s := database(t, b)
	records := faults(1203)
	if b.Slow {
		records = records[:603] // its pages are smaller too
	}
	for i := range records {
		if i%3 == 0 {
			records[i].Event.ProcessingStrategy = record.PersistOnly
		}
	}
	MustAppend(t, s, records...)
	f := openFeed(t, s, "c", record.AllHealthEventInserts())
	for i, want := range records {
		got, _, err := f.Next(within(t))
		if err != nil || got.ID != want.ID {
			t.Fatalf("record %d: %s, %v; want %s", i, got.ID, err, want.ID)
		}
	}
	process := openFeed(t, s, "p", record.ProcessableHealthEventInserts())
	for i := range len(records) * 2 / 3 {
		if got, _, err := process.Next(within(t)); err != nil || !got.Acts() {
			t.Fatalf("PROCESS record %d: %+v, %v", i, got, err)
		}
	}
	last := Record("n")
	MustAppend(t, s, last)
	for _, f := range []store.Feed{f, process} {
		if got := Receive(t, f, 1); got[0].ID != last.ID {
			t.Errorf("after the pages: %s, want %s", got[0].ID, last.ID)
		}
	}
}
