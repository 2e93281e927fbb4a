package forwarder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/spool"
	places "github.com/nvidia/nvsentinel/platform-connectors/internal/upstream"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// queue is a spool in memory; entry i has index i+1. It ends the replay when
// everything is read and confirmed.
type queue struct {
	entries   []spool.Entry
	confirmed uint64
	end       context.CancelFunc
}

func (q *queue) Bounds() (uint64, uint64) { return 0, uint64(len(q.entries)) }

func (q *queue) Read(after uint64, limit int) ([]spool.Entry, uint64, error) {
	upTo := min(after+uint64(limit), uint64(len(q.entries)))
	return q.entries[after:upTo], upTo, nil
}

func (q *queue) Wait(ctx context.Context, after uint64) error {
	if after < uint64(len(q.entries)) {
		return nil
	}
	q.end()
	<-ctx.Done()
	return ctx.Err()
}

func (q *queue) Confirm(index uint64) error {
	q.confirmed = index
	return nil
}

// fakeStore is a store that fails a given number of times and refuses some ids.
type fakeStore struct {
	failures, deadFailures int
	refuse                 map[string]bool
	problem                map[string]string // of what is refused
	stored                 []record.Record
	dead                   []string
	reasons                []string // of the dead
	appends                int
	afterReset             int // of these, those after a person's hand
}

// Append stores the records, but those to refuse, unless it has to fail.
func (f *fakeStore) Append(ctx context.Context, records []record.Record) ([]store.AppendResult, error) {
	f.appends++
	if places.IsReset(ctx) {
		f.afterReset++
	}
	if f.failures > 0 {
		f.failures--
		return nil, errors.New("connection refused")
	}
	var out []store.AppendResult
	for _, r := range records {
		result := store.Appended
		if f.refuse[r.ID] {
			result = store.Refused
			if problem := f.problem[r.ID]; problem != "" {
				places.ReportRefusal(ctx, r.ID, problem)
			}
		} else {
			f.stored = append(f.stored, r)
		}
		out = append(out, result)
	}
	return out, nil
}

func (f *fakeStore) Dead(_ context.Context, deadLetter store.DeadLetter) error {
	if f.deadFailures > 0 {
		f.deadFailures--
		return errors.New("connection refused")
	}
	f.dead, f.reasons = append(f.dead, deadLetter.ID), append(f.reasons, deadLetter.Reason)
	return nil
}

// unchanged is a pipeline without stages.
type unchanged struct{}

func (unchanged) Transform(_ context.Context, records []record.Record) ([]record.Record, func([]store.AppendResult)) {
	return records, func([]store.AppendResult) {}
}

// drip is a queue in which one entry appears every millisecond.
type drip struct {
	*queue
	start time.Time
}

func (d drip) Bounds() (uint64, uint64) {
	return 0, min(uint64(time.Since(d.start)/time.Millisecond)+1, uint64(len(d.entries)))
}

func (d drip) Read(after uint64, limit int) ([]spool.Entry, uint64, error) {
	_, committed := d.Bounds()
	upTo := min(after+uint64(limit), committed)
	return d.entries[after:upTo], upTo, nil
}

func (d drip) Wait(ctx context.Context, after uint64) error {
	for _, committed := d.Bounds(); committed <= after; _, committed = d.Bounds() {
		if after == uint64(len(d.entries)) {
			return d.queue.Wait(ctx, after)
		}
		<-time.After(time.Millisecond)
	}
	return nil
}

// forward runs until the queue is empty, in the bubble's time.
func forward(t *testing.T, q *queue, b *fakeStore) *Forwarder {
	t.Helper()
	return forwardFrom(t, q, q, b)
}

func forwardFrom(t *testing.T, from Spool, q *queue, b *fakeStore) *Forwarder {
	t.Helper()
	r := newForwarder(from, q, b, 0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	q.end = cancel
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return r
}

func newForwarder(from Spool, q *queue, b *fakeStore, window time.Duration) *Forwarder {
	registry := prometheus.NewRegistry()
	log := slog.New(slog.DiscardHandler)
	shape := func(_ context.Context, r record.Record) record.Record { return r }
	return &Forwarder{
		Spool: from, Reader: q, Clock: clock.RealClock{}, Log: log,
		Tally:    NewTally(window, &Tally{Shape: shape, Clock: clock.RealClock{}}, registry),
		Identity: func() record.NodeIdentity { return record.NodeIdentity{UID: "now", BootID: "boot-now"} },
		Sender: &Sender{
			Sink: b, Transform: unchanged{}, Clock: clock.RealClock{}, Log: log,
			Metrics: NewMetrics(registry, prometheus.NewCounter(prometheus.CounterOpts{Name: "dead"})),
		},
	}
}

func entries(n int) []spool.Entry {
	var out []spool.Entry
	for i := range n {
		r := record.Record{ID: fmt.Sprint(i), Node: record.NodeIdentity{UID: "then"}, Event: record.Event{ProcessingStrategy: record.Process}}
		out = append(out, spool.Entry{Index: uint64(i) + 1, Record: r})
	}
	return out
}

func TestOrderIsKeptThroughFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, b := &queue{entries: entries(2*Batch + 3)}, &fakeStore{failures: 5}
		start := time.Now()
		r := forward(t, q, b)
		for i, rec := range b.stored {
			if rec.ID != fmt.Sprint(i) {
				t.Fatalf("record %d is %s", i, rec.ID)
			}
		}
		if len(b.stored) != len(q.entries) || q.confirmed != uint64(len(q.entries)) {
			t.Errorf("%d of %d stored, confirmed up to %d", len(b.stored), len(q.entries), q.confirmed)
		}
		if n := testutil.ToFloat64(r.Sender.Metrics.appended.WithLabelValues("error")); n != 5 {
			t.Errorf("counted %v errors, want 5", n)
		}
		if waited := time.Since(start); waited < 500*time.Millisecond || waited > time.Minute {
			t.Errorf("five failures took %v", waited)
		}
		if ok, detail := r.Ready(); !ok {
			t.Errorf("not ready: %s", detail)
		}
	})
}

func TestSmallBatchesWaitForEachOtherButNotTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, b := &queue{entries: entries(1000)}, &fakeStore{}
		start := time.Now()
		forwardFrom(t, drip{q, start}, q, b)
		if took := time.Since(start); took > 1100*time.Millisecond || q.confirmed != 1000 {
			t.Errorf("confirmed %d of 1000 after %v", q.confirmed, took)
		}
		if b.appends > 101 {
			t.Errorf("%d appends in a second, want at most one every 10 ms", b.appends)
		}
		for i, rec := range b.stored {
			if rec.ID != fmt.Sprint(i) {
				t.Fatalf("record %d is %s", i, rec.ID)
			}
		}
	})
}

func TestRefusedRecordIsADeadLetterAndPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{entries: entries(4)}
		b := &fakeStore{refuse: map[string]bool{"1": true, "2": true}, problem: map[string]string{"2": "the record is about node gpu-8"}, deadFailures: 1}
		r := forward(t, q, b)
		if diff := cmp.Diff([]string{"1", "2"}, b.dead); diff != "" {
			t.Errorf("dead letters (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{places.OtherContent, "the record is about node gpu-8"}, b.reasons); diff != "" {
			t.Errorf("their reasons (-want +got):\n%s", diff)
		}
		if n := testutil.ToFloat64(r.Sender.Metrics.dead); n != 2 {
			t.Errorf("counted %v dead letters, want 2", n)
		}
		if q.confirmed != 4 {
			t.Errorf("confirmed up to %d, want 4", q.confirmed)
		}
	})
}

// Past the spool somebody waits for the answer: what is refused is reported, and the
// rest is stored.
func TestRefusedRecordIsReportedBesideTheSpool(t *testing.T) {
	var log bytes.Buffer
	b := &fakeStore{refuse: map[string]bool{"1": true}, problem: map[string]string{"1": "the record is about node gpu-8"}}
	c := &Sender{
		Sink: b, Transform: unchanged{}, Clock: clock.RealClock{}, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Metrics: NewMetrics(prometheus.NewRegistry(), prometheus.NewCounter(prometheus.CounterOpts{Name: "dead"})),
	}
	var records []record.Record
	for _, e := range entries(3) {
		records = append(records, e.Record)
	}
	records[2].Event.ProcessingStrategy, records[2].Event.NodeName, records[2].Event.CheckName = record.PersistOnly, "gpu-1", "Check"
	err := c.Append(t.Context(), records)
	if output := log.String(); strings.Count(output, "Skipping") != 1 ||
		!strings.Contains(output, `msg="Skipping PERSIST_ONLY event - no node conditions or K8s events will be created" node=gpu-1 checkName=Check`) {
		t.Errorf("of the one event for the record only it says %q", output)
	}
	if taken, ok := errors.AsType[*Taken](err); !ok || taken.ID != "1" || taken.Records != 1 || taken.Problem != "the record is about node gpu-8" {
		t.Errorf("answer %v", err)
	}
	if len(b.stored) != 2 || len(b.dead) != 0 {
		t.Errorf("%d stored, dead letters %v; want 2 and none, the publisher keeps it", len(b.stored), b.dead)
	}
	if n := testutil.ToFloat64(c.Metrics.appended.WithLabelValues("refused")); n != 1 {
		t.Errorf("counted %v refused, want 1", n)
	}
	if err := c.Append(t.Context(), records[:1]); err != nil {
		t.Errorf("without it: %v", err)
	}
}

func TestFieldsSetByForwarder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, b := &queue{entries: entries(2)}, &fakeStore{}
		q.entries[1].Record.Node = record.NodeIdentity{}
		q.entries[1].Record.Event.ProcessingStrategy = record.PersistOnly
		now := time.Now().UTC()
		forward(t, q, b)
		if first := b.stored[0]; first.ExpireAt != nil || first.Node.UID != "then" {
			t.Errorf("PROCESS: expires %v, node %v", first.ExpireAt, first.Node)
		}
		second := b.stored[1]
		if second.ExpireAt == nil || !second.ExpireAt.Equal(now.Add(record.Retention)) {
			t.Errorf("PERSIST_ONLY expires %v, want %v", second.ExpireAt, now.Add(record.Retention))
		}
		if diff := cmp.Diff(record.NodeIdentity{UID: "now"}, second.Node); diff != "" {
			t.Errorf("a record accepted before any sighting (-want +got):\n%s", diff)
		}
	})
}
