package spool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// rec is a record whose id is derived from n and whose message is text.
func rec(n int, text string) record.Record {
	id := uuid.NewSHA1(uuid.Nil, fmt.Append(nil, n)).String()
	return record.Record{
		ID: id, CreatedAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		Event: record.Event{
			ID: id, Agent: "agent", CheckName: "check", NodeName: "gpu-7", Message: text, ProcessingStrategy: record.Process,
		},
	}
}

func options(dir string) Options {
	return Options{
		Dir: dir, MaxBytes: 64 << 20, Clock: clock.RealClock{},
		Log:     slog.New(slog.DiscardHandler),
		Metrics: NewMetrics(prometheus.NewRegistry()),
	}
}

func open(t *testing.T, o Options) *Spool {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.refuse()
		s.wal.tail.Close()
		s.lock.Close() // the test may have closed them
	})
	return s
}

func add(t *testing.T, s *Spool, records ...record.Record) {
	t.Helper()
	if err := s.Append(t.Context(), records); err != nil {
		t.Fatal(err)
	}
}

func shut(t *testing.T, s *Spool) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// messages reads everything after an index.
func messages(t *testing.T, s *Spool, after uint64) []string {
	t.Helper()
	var out []string
	for {
		entries, upTo, err := s.Read(after, 3)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			out = append(out, e.Record.Event.Message)
		}
		if upTo == after {
			return out
		}
		after = upTo
	}
}

func TestAppendedRecordsAreReadInOrderAlsoAfterReopening(t *testing.T) {
	dir := t.TempDir()
	s := open(t, options(dir))
	add(t, s, rec(1, "one"), rec(2, "two"))
	add(t, s, rec(3, "three"))
	want := []string{"one", "two", "three"}
	if diff := cmp.Diff(want, messages(t, s, 0)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	epoch := s.Epoch()
	shut(t, s)

	s = open(t, options(dir))
	if diff := cmp.Diff(want, messages(t, s, 0)); diff != "" {
		t.Errorf("after reopening (-want +got):\n%s", diff)
	}
	if s.Epoch() != epoch {
		t.Errorf("epoch changed from %s to %s", epoch, s.Epoch())
	}
}

func TestSpoolOrderStandsInForAPublisherThatCountsNothing(t *testing.T) {
	s := open(t, options(t.TempDir()))
	counted := rec(1, "counted")
	counted.Seq, counted.SeqEpoch = 42, "outbox"
	add(t, s, counted, rec(2, "uncounted"))
	entries, _, err := s.Read(0, 10)
	if err != nil {
		t.Fatal(err)
	}
	type order struct {
		Seq   uint64
		Epoch string
	}
	want := []order{{42, "outbox"}, {2, s.Epoch()}}
	got := []order{}
	for _, e := range entries {
		got = append(got, order{e.Record.Seq, e.Record.SeqEpoch})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOnlyFullyConfirmedEntriesAreReleased(t *testing.T) {
	dir := t.TempDir()
	s := open(t, options(dir))
	store, sink := s.Reader("store"), s.Reader("sink")
	add(t, s, rec(1, "one"), rec(2, "two"), rec(3, "three"))
	confirm := func(r *Reader, index uint64) {
		if err := r.Confirm(index); err != nil {
			t.Fatal(err)
		}
	}
	confirm(store, 2)
	if released, _ := s.Bounds(); released != 0 {
		t.Fatalf("released %d without the sink", released)
	}
	confirm(sink, 1)
	if released, _ := s.Bounds(); released != 1 {
		t.Fatalf("released %d, want 1", released)
	}
	confirm(sink, 99)
	shut(t, s)

	s = open(t, options(dir))
	if diff := cmp.Diff([]string{"three"}, messages(t, s, 0)); diff != "" {
		t.Errorf("after reopening (-want +got):\n%s", diff)
	}
}

func TestIndexNeverFallsWhenEverythingIsReleased(t *testing.T) {
	dir := t.TempDir()
	o := options(dir)
	o.SegmentBytes = 512
	s := open(t, o)
	r := s.Reader("store")
	for i := range 20 {
		add(t, s, rec(i, strings.Repeat("x", 200)))
	}
	if err := r.Confirm(20); err != nil {
		t.Fatal(err)
	}
	if files, _ := os.ReadDir(filepath.Join(dir, logDir)); len(files) != 1 {
		t.Errorf("%d segments left on disk, want 1 empty one", len(files))
	}
	if s.Bytes() != 0 || s.Oldest() != 0 {
		t.Errorf("an empty spool has %d bytes, oldest %v", s.Bytes(), s.Oldest())
	}
	shut(t, s)
	o = options(dir)
	s = open(t, o)
	add(t, s, rec(100, "next"))
	entries, _, err := s.Read(0, 1)
	if err != nil || len(entries) != 1 || entries[0].Index != 21 {
		t.Errorf("next entry: %v, %v", entries, err)
	}
}

func TestALostLogBeginsANewEpoch(t *testing.T) {
	dir := t.TempDir()
	s := open(t, options(dir))
	add(t, s, rec(1, "one"))
	epoch := s.Epoch()
	shut(t, s)
	if err := os.RemoveAll(filepath.Join(dir, logDir)); err != nil {
		t.Fatal(err)
	}
	if s = open(t, options(dir)); s.Epoch() == epoch {
		t.Error("the counter began again under the same epoch")
	}
}

func TestResentRecordIsNotAddedTwice(t *testing.T) {
	s := open(t, options(t.TempDir()))
	r := s.Reader("store")
	add(t, s, rec(1, "one"), rec(1, "one"))
	add(t, s, rec(1, "one"))
	add(t, s, rec(1, "other content"))
	if diff := cmp.Diff([]string{"one", "other content"}, messages(t, s, 0)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := r.Confirm(2); err != nil {
		t.Fatal(err)
	}
	add(t, s, rec(1, "one"))
	if diff := cmp.Diff([]string{"one"}, messages(t, s, 2)); diff != "" {
		t.Errorf("after release (-want +got):\n%s", diff)
	}
}

func TestFullSpoolRefusesUntilReleased(t *testing.T) {
	o := options(t.TempDir())
	o.MaxBytes = 4096
	s := open(t, o)
	r := s.Reader("store")
	n := 0
	var err error
	for ; err == nil && n < 100; n++ {
		err = s.Append(t.Context(), []record.Record{rec(n, strings.Repeat("x", 500))})
	}
	if !errors.Is(err, ErrFull) || s.Bytes() > o.MaxBytes {
		t.Fatalf("after %d records (%d bytes): %v", n, s.Bytes(), err)
	}
	if err := r.Confirm(uint64(n)); err != nil {
		t.Fatal(err)
	}
	add(t, s, rec(n, "room again"))
}

func TestOneFsyncServesManyWaiters(t *testing.T) {
	o := options(t.TempDir())
	s := open(t, o)
	const publishers, each = 64, 20
	var syncs atomic.Int32
	first := make(chan struct{}) // closed when the first record's group has begun
	s.sync = func(f *os.File) error {
		if syncs.Load() == 0 {
			close(first)
		}
		for waiting := 0; syncs.Load() == 0 && waiting < publishers-1; runtime.Gosched() {
			s.turn.Lock()
			waiting = len(s.waiting)
			s.turn.Unlock()
		}
		syncs.Add(1)
		return f.Sync()
	}
	var wg sync.WaitGroup
	publish := func(from, to int) {
		for p := range publishers {
			if p == 1 {
				<-first // or the others may be in its group
			}
			wg.Go(func() {
				for i := from; i < to; i++ {
					if err := s.Append(context.Background(), []record.Record{rec(p*each+i, fmt.Sprintf("%d/%02d", p, i))}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	}
	publish(0, 1)
	if n := syncs.Load(); n != 2 {
		t.Errorf("%d syncs, want one for the first record and one for all that came meanwhile", n)
	}
	publish(1, each)
	got := messages(t, s, 0)
	if len(got) != publishers*each {
		t.Fatalf("%d records, want %d", len(got), publishers*each)
	}
	if !slices.IsSorted(slices.DeleteFunc(got, func(m string) bool { return !strings.HasPrefix(m, "7/") })) {
		t.Error("the records of one publisher are out of order")
	}
}

func TestFailedSyncAcknowledgesNothingAndHeals(t *testing.T) {
	o := options(t.TempDir())
	s := open(t, o)
	add(t, s, rec(1, "one"))
	sync, fail := s.sync, errors.New("input/output error")
	s.io.Lock()
	s.sync = func(*os.File) error { return fail }
	s.io.Unlock()
	for range 2 {
		if err := s.Append(t.Context(), []record.Record{rec(2, "lost")}); !errors.Is(err, ErrNotDurable) || !errors.Is(err, fail) {
			t.Fatalf("Append = %v", err)
		}
	}
	s.io.Lock()
	s.sync = sync
	s.io.Unlock()
	add(t, s, rec(3, "three"))
	want := []string{"one", "three"}
	if diff := cmp.Diff(want, messages(t, s, 0)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	shut(t, s)
	s = open(t, options(o.Dir))
	if diff := cmp.Diff(want, messages(t, s, 0)); diff != "" {
		t.Errorf("after reopening (-want +got):\n%s", diff)
	}
}

func TestCloseRefusesLaterAppends(t *testing.T) {
	s := open(t, options(t.TempDir()))
	add(t, s, rec(1, "one"))
	shut(t, s)
	if err := s.Append(t.Context(), []record.Record{rec(2, "two")}); !errors.Is(err, ErrClosed) {
		t.Errorf("Append = %v, want ErrClosed", err)
	}
}

func TestOnlyOneProcessOpensASpool(t *testing.T) {
	dir := t.TempDir()
	open(t, options(dir))
	if _, err := Open(options(dir)); err == nil {
		t.Error("a second spool opened the same folder")
	}
}

func TestWaitEndsWithTheNextRecordOrTheContext(t *testing.T) {
	s := open(t, options(t.TempDir()))
	done := make(chan error, 1)
	go func() { done <- s.Wait(context.Background(), 0) }()
	add(t, s, rec(1, "one"))
	if err := <-done; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Wait(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait = %v", err)
	}
}

func TestUndecodableRecordIsBuriedOnceAndPassed(t *testing.T) {
	o := options(t.TempDir())
	s := open(t, o)
	add(t, s, rec(1, "one"))
	bad, err := newFrame(rec(2, "two"))
	if err != nil {
		t.Fatal(err)
	}
	bad.body, bad.record = []byte("{"), nil
	r := &request{ctx: t.Context(), frames: []frame{bad}, done: make(chan error, 1)}
	if err := s.submit(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	add(t, s, rec(3, "three"))
	for range 2 {
		if diff := cmp.Diff([]string{"one", "three"}, messages(t, s, 0)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if n := testutil.ToFloat64(o.Metrics.DeadLetters.WithLabelValues(DeadUndecodable)); n != 1 {
		t.Errorf("counted %v dead letters, want 1", n)
	}
}
