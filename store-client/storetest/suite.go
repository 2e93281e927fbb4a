package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// Backend is a provider under test: real databases, and the ways to disturb
// them that each provider has.
type Backend struct {
	Name string
	// New makes an empty database and returns its address.
	New func(t testing.TB) string
	// Interrupt opens a store whose next commit breaks: arm chooses the moment. before means
	// that the database never sees the commit, otherwise the commit is carried out and its
	// answer lost.
	Interrupt func(t testing.TB, dsn string) (s store.Store, arm func(before bool))
	// Repeats means that the provider repeats a broken commit by itself: then a success is
	// correct if the record is stored.
	Repeats bool
	// Slow means that the server is slow: the cases do less.
	Slow bool
	// Orphans reports whether the server keeps the transaction of a killed client open forever,
	// with all its locks.
	Orphans func(t testing.TB) bool
	// Late begins to append r, first of all, and returns when its transaction
	// has begun; commit lets it end.
	Late func(t testing.TB, dsn string, r record.Record) (commit func())
	// Deafen breaks the wake-ups of every open store of the database; nil where
	// nothing outside a process can.
	Deafen func(t testing.TB, dsn string)
	// Damage harms a consumer's stored position.
	Damage func(t testing.TB, dsn, consumer string, d Damage)
	// Poison replaces a record's document by one that cannot be decoded.
	Poison func(t testing.TB, dsn, id string)
	// Edit changes the document of a record, or of a maintenance as "provider/id", or of
	// a provider, as a program of another version would; nil leaves it.
	Edit func(t testing.TB, dsn, id string, change func(doc []byte) []byte)
	// Schema has the database be of a newer schema, as a newer program leaves it, or again
	// of this one's.
	Schema func(t testing.TB, dsn string, newer bool)
	// OpenReader opens the database for looking in another way than storeopen does; then
	// the cases read through it, stores included. It belongs to RunReader.
	OpenReader func(t testing.TB, dsn string) store.Reader
	// PoisonMaintenance does so with the document of a maintenance.
	PoisonMaintenance func(t testing.TB, dsn, csp, id string)
}

// Damage is a way to lose a position.
type Damage struct {
	Name string
	// Position replaces the stored one; "elsewhere" stands for one of another
	// server, "beyond" for one after the end of the store.
	Position string
	// Mark means that the low-water mark is lost too.
	Mark bool
}

// Positions that a Backend makes up itself.
const (
	Elsewhere = "elsewhere"
	Beyond    = "beyond"
)

// EditPosition is a stored position with another value of one field.
func EditPosition(t testing.TB, text, field string, value any) string {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		t.Fatalf("position %q: %v", text, err)
	}
	if _, ok := fields[field]; !ok {
		t.Fatalf("position %s has no field %q", text, field)
	}
	fields[field] = value
	b, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// testCase is one promise of the port.
type testCase struct {
	name string
	run  func(t *testing.T, b Backend)
}

func cases() []testCase {
	return []testCase{
		{"append: the same id twice, in one batch and in two; other content is refused", appendTwice},
		{"append: an id that a record of another node has", appendForeignID},
		{"append: a record that was transformed since it was accepted", appendTransformed},
		{"append: the same ids from many connections at once", appendConcurrently},
		{"append: again after a cut connection", appendAfterCut},
		{"append: the writer is killed; what was acknowledged is there", appendKilled},
		{"append: refused if it could not be given back unchanged", appendUnstorable},
		{"append: a status is not the appender's", appendStatus},
		{"append: to the server that is asked for, or not at all", appendTo},
		{"append: the connector's worst accepted event is read back equal", appendWorst},
		{"read: absent is ErrNotFound, and only absent", readAbsent},
		{"list: pages in append order", listPages},
		{"list: by the publisher's counter, over its whole range", listByCounter},
		{"list and feed: selectors mean what record.Selector.Matches means", selectors},
		{"list: a record that cannot be decoded is kept aside and left out, and takes no place", listPoisoned},
		{"list: leaves out the records it is told to", listExcept},
		{"dead letters: the same again replaces, and they are read by source", deadLetters},
		{"dead letters: large ones end the list early", largeDeadLetters},
		{"dead letters: too many, too large and too old ones go, the oldest of their source first", trimmedDeadLetters},
		{"update: racing compare-and-sets, one wins each revision", updateRace},
		{"update: a batch is all or nothing", updateAllOrNothing},
		{"update: crossing batches end", updateCrossing},
		{"update: again after a cut connection", updateAfterCut},
		{"update: many at once, each with an outcome of its own", updateTogether},
		{"update: many at once change one record, and one does", updateOneRecord},
		{"update: callers that go hold nobody up", updateCancelled},
		{"update: each field has one writer, transitions are legal", updateOwnership},
		{"newer: what this version does not know survives every update", newerUpdated},
		{"newer: what this version does not know is appended as it came", newerAppended},
		{"newer: a record that only a newer version may change, or understands, is left alone and holds up no other", newerLeft},
		{"newer: nothing is written to a newer schema", newerSchema},
		{"feed: a first feed starts at the beginning", feedFirst},
		{"feed: a first feed may begin later; what is not finished comes nevertheless", feedBegun},
		{"feed: inserts once, changes again with the latest content", feedKinds},
		{"feed: a record never comes as it was before", feedNeverBack},
		{"feed: a replica that stood by reads nothing that the leader before it committed", feedStandby},
		{"feed: an older transaction commits after a younger one", feedLateCommit},
		{"feed: many writers, nothing lost", feedManyWriters},
		{"feed: the consumer is stopped at any point", feedStopped},
		{"feed: the consumer's process is killed", feedKilled},
		{"feed: woken by another process's write, without a poll", feedWoken},
		{"feed: woken by what others change; what its own consumer changed comes too", feedOwn},
		{"feed: a notification is lost", feedDeaf},
		{"feed: a stored position is gone, too old or of another server", feedLostPosition},
		{"feed: an interrupted rescan goes on", feedRescanInterrupted},
		{"feed: a commit never goes backwards", feedCommitOrder},
		{"feed: more records than a page", feedPages},
		{"feed: a record that cannot be decoded is kept aside and passed", feedPoisoned},
		{"list: the newest first", listNewest},
		{"list: a page is bounded by bytes and says that more follows", listBytes},
		{"reader: its connections do not write", readerWrites},
		{"reader: refuses a database without tables and makes none", readerEmpty},
		{"reader: who has how much before it", readerLag},
		{"expire: only what has expired", expire},
		{"expire: what a consumer has not come to waits for it, but not for ever", expireBehind},
		{"open: all services at once on an empty database", openTogether},
	}
}

// readerCases are the cases that test a reader.
func readerCases() []testCase {
	return []testCase{
		{"read: absent is ErrNotFound, and only absent", readAbsent},
		{"list: pages in append order", listPages},
		{"list: by the publisher's counter, over its whole range", listByCounter},
		{"list and feed: selectors mean what record.Selector.Matches means", selectors},
		{"list: a record that cannot be decoded is kept aside and left out, and takes no place", listPoisoned},
		{"list: leaves out the records it is told to", listExcept},
		{"list: the newest first", listNewest},
		{"list: a page is bounded by bytes and says that more follows", listBytes},
		{"append: the connector's worst accepted event is read back equal", appendWorst},
		{"dead letters: the same again replaces, and they are read by source", deadLetters},
		{"dead letters: large ones end the list early", largeDeadLetters},
		{"reader: its connections do not write", readerWrites},
		{"reader: who has how much before it", readerLag},
	}
}

// Run proves a provider. Each case has its own database. A provider's test
// calls it once, under a name of its own: some cases start the test's binary
// again, for that test only, as the process that is killed.
func Run(t *testing.T, b Backend) {
	if child(t) {
		return
	}
	run(t, b, slices.Concat(cases(), maintenanceCases()))
}

// RunReader proves another way to a store, Backend.OpenReader, by the cases that read.
func RunReader(t *testing.T, b Backend) { run(t, b, readerCases()) }

func run(t *testing.T, b Backend, list []testCase) {
	passed := 0
	var lines []string
	for _, c := range list {
		verdict := "not run"
		ok := t.Run(c.name, func(t *testing.T) {
			verdict = "FAIL"
			defer func() {
				if t.Skipped() {
					verdict = "skipped"
				}
			}()
			c.run(t, b)
		})
		if ok && verdict == "FAIL" {
			verdict = "pass"
			passed++
		}
		lines = append(lines, "  "+verdict+"  "+c.name)
	}
	t.Logf("store %s passes %d of %d conformance cases\n%s", b.Name, passed, len(list), strings.Join(lines, "\n"))
}

// waitTimeout bounds every wait of the suite; with the race detector on a busy
// machine sqlite needs 10 s for what it does in one elsewhere.
const waitTimeout = 2 * time.Minute

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	t.Cleanup(cancel)
	return ctx
}

// ended reports whether a call ended because its time did: the error may be that
// of a server that was asked meanwhile, or come when too little time is left.
func ended(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded))
}

// database makes a database and opens it.
func database(t *testing.T, b Backend) (string, store.Store) {
	t.Helper()
	dsn := b.New(t)
	return dsn, b.readerView(t, dsn, Open(t, dsn, storeopen.Options{}))
}

// openFeed opens a feed until the test ends.
func openFeed(t testing.TB, s store.Store, consumer string, sel record.Selector) store.Feed {
	t.Helper()
	f, err := s.Feed(within(t), consumer, sel)
	if err != nil {
		t.Fatalf("opening the feed of %s: %v", consumer, err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Errorf("closing the feed of %s: %v", consumer, err)
		}
	})
	return f
}

// update changes one record's status as writer.
func update(t testing.TB, s store.Store, w record.Writer, id string, edit func(*record.Status)) record.Record {
	t.Helper()
	r := MustGet(t, s, id)
	edit(&r.Status)
	if _, err := s.Update(within(t), w, []store.Change{{ID: id, Revision: r.Revision, Status: r.Status}}); err != nil {
		t.Fatalf("updating record %q: %v", id, err)
	}
	return MustGet(t, s, id)
}

// finishRecord gives a record a verdict that finishes it.
func finishRecord(t testing.TB, s store.Store, id string) {
	t.Helper()
	update(t, s, record.FaultQuarantine, id, func(st *record.Status) {
		st.QuarantineVerdict = &record.Verdict{Reason: record.NoRuleMatched, At: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)}
	})
}

func ids(records []record.Record) []string {
	var out []string
	for _, r := range records {
		out = append(out, r.ID)
	}
	return out
}

// faults makes n records of one node, n.
func faults(n int) []record.Record {
	var out []record.Record
	for range n {
		out = append(out, Record("n"))
	}
	return out
}
