package postgresql_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// admitting is a server that admits prepared transactions, and a database of it.
func admitting(t *testing.T) (server *pgtest.Server, dsn string) {
	t.Helper()
	server = pgtest.Own(t, pgtest.Options{Settings: []string{"max_prepared_transactions=8"}})
	dsn, err := server.CreateDatabase(t.Context(), "records")
	if err != nil {
		t.Fatal(err)
	}
	return server, dsn
}

// foreign begins a writing transaction in another database of the server, and
// leaves it open.
func foreign(t *testing.T, server *pgtest.Server) (end func()) {
	t.Helper()
	conn, err := server.Connect(t.Context(), "postgres")
	if err != nil {
		t.Fatal(err)
	}
	// The table apart: another one's transaction must not wait for its creation.
	for _, statement := range []string{"CREATE TABLE IF NOT EXISTS theirs (n int)", "BEGIN; INSERT INTO theirs VALUES (1)"} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	end = sync.OnceFunc(func() {
		if err := conn.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	return end
}

// prepared leaves a prepared transaction behind in another database.
func prepared(t *testing.T, server *pgtest.Server) (end func()) {
	t.Helper()
	do := func(statements ...string) {
		for _, statement := range statements {
			if err := server.Exec(context.WithoutCancel(t.Context()), "postgres", statement); err != nil {
				t.Error(err)
			}
		}
	}
	do("CREATE TABLE IF NOT EXISTS theirs (n int)", "BEGIN; INSERT INTO theirs VALUES (1); PREPARE TRANSACTION 'forgotten'")
	end = sync.OnceFunc(func() { do("ROLLBACK PREPARED 'forgotten'") })
	t.Cleanup(end)
	return end
}

// changes follows every change of every record.
func changes() record.Selector {
	return record.Selector{Name: "changes", Strategy: record.Process}
}

// A transaction of somebody else holds nothing back: what is stored after it
// began is delivered at once and once, counted as waiting until it is committed,
// and after a restart only what was not committed comes again.
func TestALongTransactionHoldsNoFeed(t *testing.T) {
	server, _ := admitting(t)
	for name, hold := range map[string]func(*testing.T, *pgtest.Server) func(){"open": foreign, "prepared": prepared} {
		for _, sel := range []record.Selector{all(), changes()} {
			t.Run(name+" "+sel.Name, func(t *testing.T) {
				dsn, err := server.CreateDatabase(t.Context(), name+sel.Name)
				if err != nil {
					t.Fatal(err)
				}
				s := storetest.Open(t, dsn, storeopen.Options{})
				end := hold(t, server)
				f := feedOf(t, s, "c", sel)
				var records []record.Record
				for range 5 {
					records = append(records, storetest.Record("n"))
				}
				storetest.MustAppend(t, s, records[0], records[1])
				waiting(t, dsn, sel, 2)
				expect(t, f, true, records[0], records[1])
				waiting(t, dsn, sel, 0)
				storetest.MustAppend(t, s, records[2])
				waiting(t, dsn, sel, 1)
				expect(t, f, false, records[2])
				again := feedOf(t, s, "c", sel)
				expect(t, again, true, records[2])
				end()
				storetest.MustAppend(t, s, records[3])
				expect(t, again, true, records[3])
				storetest.MustAppend(t, s, records[4])
				expect(t, feedOf(t, s, "c", sel), true, records[4])
			})
		}
	}
}

// expect receives these records and no other.
func expect(t *testing.T, f store.Feed, commit bool, want ...record.Record) {
	t.Helper()
	for _, r := range want {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		got, position, err := f.Next(ctx)
		if err == nil && commit {
			err = f.Commit(ctx, position)
		}
		cancel()
		if err != nil || got.ID != r.ID {
			t.Fatalf("fed %s, %v; want %s", got.ID, err, r.ID)
		}
	}
}

// waiting checks the lag that `nvsentinel status` shows.
func waiting(t *testing.T, dsn string, sel record.Selector, want int) {
	t.Helper()
	lag, err := storetest.Reader(t, dsn).Lag(t.Context(), "c", sel, 100)
	if err != nil || lag.Pending != want || lag.Oldest.IsZero() != (want == 0) {
		t.Errorf("%+v wait, %v; want %d", lag, err, want)
	}
}

// A transaction of our own that commits late is delivered too, although what was
// stored after it was delivered and committed, by another process even.
func TestALateTransactionIsNotPassed(t *testing.T) {
	for _, sel := range []record.Selector{all(), changes()} {
		_, dsn := pgtest.Database(t)
		s := storetest.Open(t, dsn, storeopen.Options{})
		older, younger, last := storetest.Record("n"), storetest.Record("n"), storetest.Record("n")
		f := feedOf(t, s, "c", sel)
		commit := late(t, dsn, older)
		storetest.MustAppend(t, s, younger)
		expect(t, f, true, younger)
		again := feedOf(t, s, "c", sel)
		commit()
		expect(t, again, true, older)
		expect(t, f, false, older)
		storetest.MustAppend(t, s, last)
		expect(t, again, true, last)
	}
}

// TestFeedsAmongLongTransactions opens and ends transactions of others and of
// our own at random, while a consumer reads, commits and starts again: nothing is
// missed, and nothing comes twice to one feed.
func TestFeedsAmongLongTransactions(t *testing.T) {
	for seed := range uint64(3) {
		_, dsn := pgtest.Database(t)
		w := &wanderer{rng: rand.New(rand.NewPCG(seed, 7)), s: storetest.Open(t, dsn, storeopen.Options{}), dsn: dsn, positions: map[string]int{}}
		w.f = feedOf(t, w.s, "c", all())
		for range 60 {
			w.step(t)
		}
		for _, end := range w.open {
			end()
		}
		if w.late != nil {
			w.late()
			w.lates = ""
		}
		w.f, w.delivered = feedOf(t, w.s, "c", all()), nil
		for w.waiting() > 0 {
			w.receive(t)
		}
		for id, state := range w.positions {
			if state != done {
				t.Errorf("seed %d: record %s was never delivered to the end", seed, id)
			}
		}
	}
}

const (
	stored = iota
	done
)

type wanderer struct {
	rng       *rand.Rand
	s         store.Store
	dsn       string
	f         store.Feed
	open      []func()
	late      func()
	lates     string
	positions map[string]int
	delivered []string
}

func (w *wanderer) waiting() int {
	n := 0
	for id, state := range w.positions {
		if state == stored && id != w.lates {
			n++
		}
	}
	return n
}

func (w *wanderer) step(t *testing.T) {
	t.Helper()
	switch w.rng.IntN(7) {
	case 0:
		if len(w.open) < 2 {
			w.open = append(w.open, foreign(t, pgtest.Shared(t)))
		}
	case 1:
		if len(w.open) > 0 {
			w.open[0]()
			w.open = w.open[1:]
		}
	case 2:
		if w.late == nil {
			r := storetest.Record("n")
			w.positions[r.ID], w.lates = stored, r.ID
			w.late = late(t, w.dsn, r)
		} else {
			w.late()
			w.late, w.lates = nil, ""
		}
	case 3:
		w.f, w.delivered = feedOf(t, w.s, "c", all()), nil
	case 4:
		r := storetest.Record("n")
		w.positions[r.ID] = stored
		storetest.MustAppend(t, w.s, r)
	default:
		if w.waiting() > 0 {
			w.receive(t)
		}
	}
}

// receive takes one record and commits it.
func (w *wanderer) receive(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, position, err := w.f.Next(ctx)
	if err == nil {
		err = w.f.Commit(ctx, position)
	}
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(w.delivered, r.ID) {
		t.Errorf("record %s came twice to one feed", r.ID)
	}
	w.delivered, w.positions[r.ID] = append(w.delivered, r.ID), done
}

// A position that was not committed is not: rows above the horizon that one
// reading delivered together come again together.
func TestRowsAboveTheHorizonThatWereNotCommittedComeAgain(t *testing.T) {
	_, dsn := pgtest.Database(t)
	s := storetest.Open(t, dsn, storeopen.Options{})
	foreign(t, pgtest.Shared(t))
	a, b, c := storetest.Record("n"), storetest.Record("n"), storetest.Record("n")
	storetest.MustAppend(t, s, a, b, c)
	f := feedOf(t, s, "c", all())
	expect(t, f, true, a, b)
	got := storetest.Receive(t, feedOf(t, s, "c", all()), 3)
	var ids []string
	for _, r := range got {
		ids = append(ids, r.ID)
	}
	if diff := cmp.Diff([]string{a.ID, b.ID, c.ID}, ids); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
}

// leap is a clock that can be put forward.
type leap struct {
	clock.RealClock
	by *atomic.Int64
}

func (l leap) Now() time.Time                   { return l.RealClock.Now().Add(time.Duration(l.by.Load())) }
func (l leap) Since(at time.Time) time.Duration { return l.Now().Sub(at) }

// has reports whether a log has all parts.
func has(log *testkit.Output, parts ...string) bool {
	text := log.String()
	return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(text, p) })
}

// Who holds the horizon of the server for a minute is named.
func TestTheOldestTransactionIsNamed(t *testing.T) {
	server, dsn := admitting(t)
	for want, hold := range map[string]func(*testing.T, *pgtest.Server) func(){
		"of user postgres in database postgres": foreign, "prepared transaction 'forgotten'": prepared,
	} {
		var log testkit.Output
		now := leap{by: new(atomic.Int64)}
		s := storetest.Open(t, dsn, storeopen.Options{Clock: now, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		end := hold(t, server)
		f := feedOf(t, s, "c", all())
		for i := 0; !has(&log, want, "begun", "consumer=c") && !has(&log, want, "prepared 2", "consumer=c"); i++ {
			if i == 1000 {
				t.Fatalf("nobody is named: %s", log.String())
			}
			now.by.Add(int64(2 * time.Minute))
			r := storetest.Record("n")
			storetest.MustAppend(t, s, r)
			expect(t, f, true, r)
		}
		end()
	}
}
