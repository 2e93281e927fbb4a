package transform

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/spool"
	"github.com/nvidia/nvsentinel/platform-connectors/pipeline"
)

// queue is a spool in memory, which outlives the followers of a test.
type queue struct {
	mu       sync.Mutex
	entries  []spool.Entry
	released uint64
	full     bool
	confirms int
	changed  chan struct{}
}

func newQueue() *queue { return &queue{changed: make(chan struct{})} }

func (q *queue) Bounds() (uint64, uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.released, uint64(len(q.entries))
}

func (q *queue) Read(after uint64, limit int) ([]spool.Entry, uint64, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	after = max(after, q.released)
	upTo := min(after+uint64(limit), uint64(len(q.entries)))
	return slices.Clone(q.entries[after:upTo]), upTo, nil
}

func (q *queue) Wait(ctx context.Context, after uint64) error {
	for {
		q.mu.Lock()
		changed, more := q.changed, uint64(len(q.entries)) > after
		q.mu.Unlock()
		if more {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (q *queue) Append(_ context.Context, records []record.Record) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.full {
		return spool.ErrFull
	}
	for _, r := range records {
		known := func(e spool.Entry) bool { return e.Record.ID == r.ID }
		if !slices.ContainsFunc(q.entries[q.released:], known) {
			q.entries = append(q.entries, spool.Entry{Index: uint64(len(q.entries)) + 1, Record: r})
		}
	}
	close(q.changed)
	q.changed = make(chan struct{})
	return nil
}

func (q *queue) Confirm(index uint64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.released = index
	q.confirms++
	return nil
}

func (q *queue) setFull(full bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.full = full
}

// confirmations are the spool's, as what they confirm.
func (q *queue) confirmations() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []string
	for _, e := range q.entries {
		if of := e.Record.Event.Confirms(); of != "" {
			out = append(out, of[len(of)-1:])
		}
	}
	return strings.Join(out, " ")
}

// send has an event accepted; its id ends with the letter.
func (q *queue) send(letter, check string, change ...func(*record.Event)) {
	e := record.Event{
		ID: "c9bf9e57-1685-4c89-bafb-ff5af830be8" + letter, Agent: "a", CheckName: check, NodeName: "n", IsFatal: true,
		ProcessingStrategy: record.Process, EntitiesImpacted: []record.Entity{{EntityType: "GPU_UUID", EntityValue: "GPU-1"}},
	}
	for _, c := range change {
		c(&e)
	}
	_ = q.Append(context.Background(), []record.Record{{ID: e.ID, CreatedAt: time.Now().UTC().Round(0), Event: e}})
}

var rules = []pipeline.ConfirmRule{
	{Name: "both", When: `event.checkName == "X"`, Second: `event.checkName == "D"`, Within: time.Minute},
	{Name: "stands", When: `event.checkName == "T"`, StandsFor: 2 * time.Minute},
}

func newFollower(t *testing.T, path string, q *queue) *Confirmation {
	t.Helper()
	d := &Confirmation{
		Path: path, Spool: q, Reader: q, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler), Metrics: NewConfirmationMetrics(prometheus.NewRegistry()),
		Evaluate: evaluate(t, rules...),
	}
	d.Load()
	return d
}

type evaluation = func(context.Context, record.Record) (record.Event, pipeline.Notes)

func evaluate(t *testing.T, rules ...pipeline.ConfirmRule) evaluation {
	t.Helper()
	c := pipeline.Default()
	c.Stages, c.Confirmation.Rules = []string{pipeline.StageConfirmation}, rules
	p, err := pipeline.Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	return func(_ context.Context, r record.Record) (record.Event, pipeline.Notes) { return p.Apply(r.Event, nil) }
}

// live runs a follower on the queue for so long, in the bubble's time.
func live(t *testing.T, path string, q *queue, d time.Duration) *Confirmation {
	t.Helper()
	follower := newFollower(t, path, q)
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := follower.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return follower
}

// TestAcrossRestarts: what waits, and what was confirmed, is known to the next life.
func TestAcrossRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, path := newQueue(), filepath.Join(t.TempDir(), "unconfirmed.json")
		q.send("1", "X")
		if d := live(t, path, q, time.Second); testutil.ToFloat64(d.Metrics.waiting) != 1 || q.released != 1 {
			t.Fatalf("%v wait, released up to %d", testutil.ToFloat64(d.Metrics.waiting), q.released)
		}
		q.send("2", "D")
		live(t, path, q, time.Second)
		q.send("3", "D")
		q.send("4", "X")
		d := live(t, path, q, time.Second)
		if got := q.confirmations(); got != "1" {
			t.Errorf("confirmed: %q", got)
		}
		if released, committed := q.Bounds(); released != committed || testutil.ToFloat64(d.Metrics.waiting) != 0 {
			t.Errorf("released up to %d of %d, %v wait", released, committed, testutil.ToFloat64(d.Metrics.waiting))
		}
	})
}

var errPower = errors.New("the power is gone")

// cut is a spool and reader that fail from a call on, as if the process had died
// there: what it did last has, or has not, happened.
type cut struct {
	*queue
	left  int
	after bool // the last call has an effect, and nobody gets to know
}

func (c *cut) dies() (now, gone bool) {
	c.left--
	return c.left == 0, c.left < 0
}

func (c *cut) Append(ctx context.Context, records []record.Record) error {
	now, gone := c.dies()
	if gone || now && !c.after {
		return errPower
	}
	err := c.queue.Append(ctx, records)
	if now {
		return errPower
	}
	return err
}

func (c *cut) Confirm(index uint64) error {
	now, gone := c.dies()
	if gone || now && !c.after {
		return errPower
	}
	err := c.queue.Confirm(index)
	if now {
		return errPower
	}
	return err
}

// TestOnceWhereverItDies: a life ends at each call of the spool, before and after
// it has an effect, and the next one goes on.
func TestOnceWhereverItDies(t *testing.T) {
	for calls := 1; calls <= 6; calls++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprint(calls, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q, path := newQueue(), filepath.Join(t.TempDir(), "unconfirmed.json")
					q.send("1", "X")
					q.send("2", "D")
					d, c := newFollower(t, path, q), &cut{q, calls, after}
					d.Spool, d.Reader = c, c
					for range 4 { // steps, without the retries of a process that lives
						if d.step(t.Context()) != nil {
							break
						}
					}
					live(t, path, q, time.Second)
					if got := q.confirmations(); got != "1" {
						t.Errorf("confirmed: %q", got)
					}
					if released, committed := q.Bounds(); released != committed || committed != 3 {
						t.Errorf("released up to %d of %d", released, committed)
					}
				})
			})
		}
	}
}

// TestAFullSpoolIsNoDeadlock: what is confirmed waits for room without holding what
// is before it.
func TestAFullSpoolIsNoDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, path := newQueue(), filepath.Join(t.TempDir(), "unconfirmed.json")
		q.send("1", "X")
		q.send("2", "D")
		q.setFull(true)
		d := live(t, path, q, 5*time.Second)
		if _, detail := d.Ready(); q.released != 2 || !strings.Contains(detail, spool.ErrFull.Error()) {
			t.Errorf("released up to %d of 2: %s", q.released, detail)
		}
		q.setFull(false)
		live(t, path, q, 5*time.Second)
		if got := q.confirmations(); got != "1" {
			t.Errorf("confirmed: %q", got)
		}
	})
}

// TestStanding: each life counts the time that a fault stands from zero, so that a clock
// which is set confirms nothing, and needs no event to end.
func TestStanding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, path := newQueue(), filepath.Join(t.TempDir(), "unconfirmed.json")
		q.send("1", "T")
		live(t, path, q, 110*time.Second)
		live(t, path, q, 110*time.Second)
		if got := q.confirmations(); got != "" {
			t.Errorf("confirmed by two lives that saw it stand for less: %q", got)
		}
		live(t, path, q, 121*time.Second)
		live(t, path, q, time.Hour)
		if got := q.confirmations(); got != "1" {
			t.Errorf("confirmed: %q", got)
		}
		q.send("2", "T", func(e *record.Event) { e.IsHealthy = true })
		q.send("3", "T")
		time.AfterFunc(time.Minute, func() { q.send("4", "T", func(e *record.Event) { e.IsHealthy = true }) })
		live(t, path, q, time.Hour)
		if got := q.confirmations(); got != "1" {
			t.Errorf("what did not stand for long is confirmed: %q", got)
		}
	})
}

// TestNothingComes: a wait ends by time alone, which is counted.
func TestNothingComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, path := newQueue(), filepath.Join(t.TempDir(), "unconfirmed.json")
		q.send("1", "X")
		if d := live(t, path, q, 110*time.Second); testutil.ToFloat64(d.Metrics.waiting) != 1 {
			t.Errorf("after less than its window and a minute %v wait", testutil.ToFloat64(d.Metrics.waiting))
		}
		d := live(t, path, q, time.Minute)
		if waiting, lapsed := testutil.ToFloat64(d.Metrics.waiting), testutil.ToFloat64(d.Metrics.ends.WithLabelValues("lapsed")); waiting != 0 || lapsed != 1 {
			t.Errorf("then %v wait, %v have lapsed", waiting, lapsed)
		}
	})
}

// TestAFileThatIsBad: a bad file is reported and started again; what was acknowledged goes on.
func TestAFileThatIsBad(t *testing.T) {
	for name, content := range map[string]string{"torn": "{", "of another version": `{"version":9,"set":{}}`} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, path := newQueue(), filepath.Join(t.TempDir(), "unconfirmed.json")
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
				q.send("1", "X")
				q.send("2", "D")
				live(t, path, q, time.Second)
				if got := q.confirmations(); got != "1" {
					t.Errorf("confirmed: %q", got)
				}
			})
		})
	}
}

// TestAFloodCostsTenWritesASecond of the file, which shares the disk with the spool.
func TestAFloodCostsTenWritesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, path := newQueue(), filepath.Join(t.TempDir(), "unconfirmed.json")
		go func() {
			for i := range 1000 {
				q.send("1", "X", func(e *record.Event) { e.ID = fmt.Sprintf("c9bf9e57-1685-4c89-bafb-ff5af830b%03x", i) })
				<-time.After(time.Millisecond)
			}
		}()
		live(t, path, q, 2*time.Second)
		if q.released != 1000 || q.confirms > 12 {
			t.Errorf("%d of 1000 read in %d writes", q.released, q.confirms)
		}
	})
}
