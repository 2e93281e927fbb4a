package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/event-exporter/cloudevent"
	"github.com/nvidia/nvsentinel/event-exporter/internal/delivery"
	"github.com/nvidia/nvsentinel/event-exporter/internal/sender"
	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// world is a store, whose position is an index, and a receiver, which outlive
// the exporter.
type world struct {
	store.Store
	t       *testing.T
	mu      sync.Mutex
	records []record.Record
	// more is signalled when records were added.
	more      chan struct{}
	committed int
	begun     []time.Time
	taken     map[string]int // by the receiver, by id
	first     []string       // ids in the order of their first delivery
	batches   []int          // events of each request
	dead      map[string]string
	// answer of the receiver for the ids of a request.
	answer       func(ids []string) sender.Result
	buried       func() error
	deadLettered passing
}

func newWorld(t *testing.T, records ...record.Record) *world {
	return &world{
		t: t, records: records, more: make(chan struct{}, 1), taken: map[string]int{}, dead: map[string]string{},
		answer: func([]string) sender.Result { return status(200) },
		buried: func() error { return nil }, deadLettered: passing{},
	}
}

func status(code int) sender.Result {
	return sender.Result{Facts: cloudevent.Facts{Status: code}, Detail: "HTTP " + strconv.Itoa(code)}
}

func (w *world) add(r ...record.Record) {
	w.mu.Lock()
	w.records = append(w.records, r...)
	w.mu.Unlock()
	select {
	case w.more <- struct{}{}:
	default:
	}
}

func (w *world) Begin(_ context.Context, consumer string, _ record.Selector, since time.Time) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if consumer != "event-exporter" {
		w.t.Errorf("consumer %q", consumer)
	}
	w.begun = append(w.begun, since)
	return len(w.begun) == 1, nil
}

func (w *world) Feed(_ context.Context, _ string, selector record.Selector) (store.Feed, error) {
	if selector.Name != "AllHealthEventInserts" {
		w.t.Errorf("selector %q", selector.Name)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return &tape{world: w, next: w.committed}, nil
}

func (w *world) Dead(_ context.Context, letter store.DeadLetter) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.buried(); err != nil {
		return err
	}
	if letter.Source != "event-exporter" || len(letter.Body) == 0 || letter.At.IsZero() {
		w.t.Errorf("dead letter %+v", letter)
	}
	w.dead[letter.ID] = letter.Reason
	return nil
}

func (w *world) Send(ctx context.Context, events []event.Event) sender.Result {
	var ids []string
	for _, e := range events {
		ids = append(ids, e.ID())
	}
	select {
	case <-time.After(time.Millisecond):
	case <-ctx.Done():
		return sender.Result{Facts: cloudevent.Facts{Events: len(ids)}, Detail: ctx.Err().Error()}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.batches = append(w.batches, len(ids))
	r := w.answer(ids)
	r.Events = len(ids)
	if r.Status == 200 || r.Detail == "lost" {
		for _, id := range ids {
			w.taken[id]++
			if w.taken[id] == 1 {
				w.first = append(w.first, id)
			}
		}
	}
	return r
}

// tape is one feed.
type tape struct {
	*world
	next int
}

func (t *tape) Next(ctx context.Context) (record.Record, string, error) {
	for {
		t.mu.Lock()
		if t.next < len(t.records) {
			defer t.mu.Unlock()
			t.next++
			return t.records[t.next-1], strconv.Itoa(t.next), nil
		}
		t.mu.Unlock()
		select {
		case <-t.more:
		case <-ctx.Done():
			return record.Record{}, "", ctx.Err()
		}
	}
}

// Commit fails the test if anything below the position is neither taken nor
// buried.
func (t *tape) Commit(_ context.Context, position string) error {
	n, err := strconv.Atoi(position)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.records[t.committed:max(n, t.committed)] {
		if _, dead := t.dead[r.ID]; t.taken[r.ID] == 0 && !dead {
			t.t.Errorf("position %d is stored, but %s was not delivered", n, r.ID)
		}
	}
	t.committed = max(t.committed, n)
	return err
}

func (t *tape) Close() error { return nil }

// exporter is one of the world.
func (w *world) exporter(edit func(*delivery.Exporter)) (*delivery.Exporter, *consume.Loop[record.Record]) {
	w.t.Helper()
	frame, err := cloudevent.NewFrame(map[string]string{"cluster": "c"})
	if err != nil {
		w.t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	d := &delivery.Exporter{
		Records: w, Receiver: w, Frame: frame,
		Policy:     cloudevent.Policy{Poison: []int{400, 413, 422}, LongestWish: time.Hour},
		Pauses:     delivery.Pauses{Initial: time.Second, Longest: time.Minute, Multiplier: 2},
		Partitions: 4, Batch: 1, LookBack: 24 * time.Hour,
		Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler), Metrics: delivery.NewMetrics(registry),
	}
	if edit != nil {
		edit(d)
	}
	service := d.Service()
	service.Vet = &consume.Vetting[record.Record]{Memory: w.deadLettered, ID: func(r record.Record) string { return r.ID }, Try: d.Try}
	loop := service.Loop(&daemon.Daemon{Clock: d.Clock, Log: d.Log, Registry: registry})
	d.Metrics.Show(d)
	return d, loop
}

// run exports until d is over.
func (w *world) run(d time.Duration, edit func(*delivery.Exporter)) {
	w.t.Helper()
	_, loop := w.exporter(edit)
	ctx, cancel := context.WithTimeout(w.t.Context(), d)
	defer cancel()
	if err := loop.Run(ctx); err != nil {
		w.t.Error(err)
	}
}

// history is n records over some nodes.
func history(n, nodes int) []record.Record {
	var out []record.Record
	for i := range n {
		out = append(out, testkit.Fault(fmt.Sprintf("r%04d", i)).Node(fmt.Sprintf("node-%d", i*7%nodes)).Record())
	}
	return out
}

// inOrder fails the test unless each node's records were first delivered in the
// order of the store.
func (w *world) inOrder() {
	w.t.Helper()
	want, got := map[string][]string{}, map[string][]string{}
	node := map[string]string{}
	for _, r := range w.records {
		node[r.ID] = r.Event.NodeName
		if w.taken[r.ID] > 0 {
			want[r.Event.NodeName] = append(want[r.Event.NodeName], r.ID)
		}
	}
	for _, id := range w.first {
		got[node[id]] = append(got[node[id]], id)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("first deliveries per node (-want +got):\n%s", diff)
	}
}

// TestNothingIsLostAtRandom lets everything go wrong at random, the exporter
// stop at random, and looks at every position that is stored.
func TestNothingIsLostAtRandom(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 5))
			w := newWorld(t, history(400, 1+rng.IntN(12))...)
			poison := map[string]bool{}
			for range rng.IntN(8) {
				poison[w.records[rng.IntN(len(w.records))].ID] = true
			}
			w.buried = func() error {
				if rng.IntN(3) == 0 {
					return errors.New("the store is away")
				}
				return nil
			}
			w.answer = func(ids []string) sender.Result {
				if slices.ContainsFunc(ids, func(id string) bool { return poison[id] }) {
					return status(413)
				}
				switch rng.IntN(30) {
				case 0:
					return sender.Result{Detail: "lost"}
				case 1:
					return status([]int{401, 403, 404, 429, 500, 503}[rng.IntN(6)])
				case 2:
					r := status(429)
					r.RetryAfter = strconv.Itoa(rng.IntN(100))
					return r
				}
				return status(200)
			}
			edit := func(d *delivery.Exporter) { d.Partitions, d.Batch = 1+rng.IntN(6), 1+rng.IntN(20) }
			for range 10 {
				w.run(time.Duration(rng.IntN(2000))*time.Millisecond, edit)
			}
			w.run(12*time.Hour, edit)
			if w.committed != len(w.records) || len(w.dead) != len(poison) {
				t.Errorf("seed %d: position %d of %d, %d dead letters of %d", seed, w.committed, len(w.records), len(w.dead), len(poison))
			}
			for id, reason := range w.dead {
				if !poison[id] || w.taken[id] > 0 || reason != "EventRefused: HTTP 413" {
					t.Errorf("seed %d: dead letter %s: %s", seed, id, reason)
				}
			}
			w.inOrder()
		})
	}
}

func TestBatchesAreFilledAndKeepPoisonApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, history(300, 1)...)
		w.answer = func(ids []string) sender.Result {
			if slices.Contains(ids, "r0123") {
				return status(400)
			}
			return status(200)
		}
		w.run(time.Minute, func(d *delivery.Exporter) { d.Batch = 50 })
		if want := map[string]string{"r0123": "EventRefused: HTTP 400"}; cmp.Diff(want, w.dead) != "" || len(w.taken) != 299 {
			t.Errorf("dead %v, %d taken", w.dead, len(w.taken))
		}
		if most := slices.Max(w.batches); most != 50 || len(w.batches) > 40 {
			t.Errorf("%d requests with up to %d events: %v", len(w.batches), most, w.batches)
		}
		w.inOrder()
	})
}

// TestRetryAfterHoldsEveryone: a pause that the receiver asks for is kept by
// all partitions, even when it is longer than the loop's own longest wait.
func TestRetryAfterHoldsEveryone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, history(40, 10)...)
		began, refused := time.Now(), time.Time{}
		var early []string
		w.answer = func(ids []string) sender.Result {
			switch since := time.Since(refused); {
			case refused.IsZero():
				refused = time.Now()
				r := status(429)
				r.RetryAfter = "600"
				return r
			case since > 2*time.Millisecond && since < 10*time.Minute:
				early = append(early, ids...)
			}
			return status(200)
		}
		w.run(time.Hour, nil)
		if len(early) > 0 || len(w.taken) != 40 {
			t.Errorf("sent within the pause: %v; %d taken after %s", early, len(w.taken), time.Since(began))
		}
	})
}

// TestOwnTroubleBuriesNothing: credentials that the receiver refuses stop
// everything, show at once, and leave no dead letter.
func TestOwnTroubleBuriesNothing(t *testing.T) {
	for _, code := range []int{401, 403, 404} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, history(20, 5)...)
			known := false
			w.answer = func([]string) sender.Result {
				if known {
					return status(200)
				}
				return status(code)
			}
			d, loop := w.exporter(nil)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- loop.Run(ctx) }()
			<-time.After(time.Second / 2)
			if ok, detail := d.Receiving(); ok || !strings.Contains(detail, "HTTP "+strconv.Itoa(code)) {
				t.Errorf("after %d: ready %v, %s", code, ok, detail)
			}
			<-time.After(2 * time.Minute)
			if ok, detail := loop.Ready(); ok || !strings.Contains(detail, "HTTP "+strconv.Itoa(code)) {
				t.Errorf("loop ready %v, %s", ok, detail)
			}
			w.mu.Lock()
			if n := len(w.batches); n > 40 {
				t.Errorf("%d requests in two minutes of pauses", n)
			}
			known = true
			w.mu.Unlock()
			<-time.After(3 * time.Minute)
			if ok, detail := d.Receiving(); !ok {
				t.Errorf("after it ended: %s", detail)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if len(w.dead) > 0 || len(w.taken) != 20 || w.committed != 20 {
				t.Errorf("dead %v, %d taken, position %d", w.dead, len(w.taken), w.committed)
			}
		})
	}
}

// TestAPartitionInTroubleHoldsOnlyItself: a receiver that fails for one node's
// events gets the others.
func TestAPartitionInTroubleHoldsOnlyItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, history(100, 20)...)
		w.answer = func(ids []string) sender.Result {
			if ids[0] == "r0000" {
				return status(500)
			}
			return status(200)
		}
		d, loop := w.exporter(nil)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
		defer cancel()
		details := make(chan [2]string, 1)
		time.AfterFunc(19*time.Minute, func() {
			_, late := loop.Ready()
			_, behind := d.KeepsUp()
			details <- [2]string{late, behind}
		})
		if err := loop.Run(ctx); err != nil {
			t.Error(err)
		}
		if len(w.taken) < 60 || w.taken["r0000"] > 0 || w.committed != 0 {
			t.Errorf("%d taken, position %d", len(w.taken), w.committed)
		}
		if got := <-details; !strings.Contains(got[0], "HTTP 500") || !strings.Contains(got[1], "undelivered") {
			t.Errorf("readiness: %q", got)
		}
	})
}

func TestLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, testkit.Fault("a").At(time.Now().Add(-time.Hour)).Record())
		w.answer = func([]string) sender.Result { return status(503) }
		d, loop := w.exporter(func(d *delivery.Exporter) { d.MaxLag = 30 * time.Minute })
		if ok, _ := d.KeepsUp(); !ok {
			t.Error("a replica that stands by lags")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- loop.Run(ctx) }()
		<-time.After(time.Minute)
		if ok, detail := d.KeepsUp(); ok || !strings.Contains(detail, "1h1m0s old, more than 30m0s") {
			t.Errorf("ready %v, %s", ok, detail)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestOldRecordsAreSentSlowly: the rate bounds what is old, and nothing else.
func TestOldRecordsAreSentSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := history(300, 5)
		for i := range old {
			old[i].CreatedAt = time.Now().Add(-time.Hour)
		}
		w := newWorld(t, old...)
		began := time.Now()
		var at time.Duration
		w.answer = func([]string) sender.Result { at = time.Since(began); return status(200) }
		w.run(10*time.Minute, func(d *delivery.Exporter) { d.Rate = 10 })
		if len(w.taken) != 300 || at < 28*time.Second || at > 31*time.Second {
			t.Errorf("%d of 300 old records in %s at 10 per second", len(w.taken), at)
		}
		fresh := history(600, 5)[300:]
		for i := range fresh {
			fresh[i].CreatedAt = time.Now()
		}
		w.add(fresh...)
		began = time.Now()
		w.run(time.Minute, func(d *delivery.Exporter) { d.Rate = 10 })
		if len(w.taken) != 600 || at > 5*time.Second {
			t.Errorf("%d of 600 taken, the fresh ones in %s", len(w.taken), at)
		}
	})
}

func TestTheFirstStartLooksBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		want := []time.Time{time.Now().Add(-time.Hour)}
		w.run(time.Second, func(d *delivery.Exporter) { d.LookBack = time.Hour })
		if diff := cmp.Diff(want, w.begun); diff != "" {
			t.Errorf("begun (-want +got):\n%s", diff)
		}
	})
}

// TestARecordThatMakesNoEventIsBuried and passed.
func TestARecordThatMakesNoEventIsBuried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := history(10, 1)
		records[4].ID = ""
		w := newWorld(t, records...)
		w.run(time.Minute, func(d *delivery.Exporter) { d.Batch = 100 })
		if len(w.taken) != 9 || !strings.HasPrefix(w.dead[""], "EncodingFailed: ") || w.committed != 10 {
			t.Errorf("%d taken, dead %v, position %d", len(w.taken), w.dead, w.committed)
		}
	})
}
