package consume_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/internal/retry"
)

// tape is a feed of keys whose position is the index; it resumes after what
// was committed.
type tape struct {
	mu        sync.Mutex
	keys      []string
	next      int
	committed int
	failNext  int
	// failOpen fail before one works; opened counts those that are not closed.
	failOpen, opened int
	// failCommits fail before one works; commits counts those that worked.
	failCommits, commits int
	pace                 time.Duration // between two deliveries
	more                 chan struct{} // signalled when keys were added
}

// add delivers one more key.
func (t *tape) add(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keys = append(t.keys, key)
	close(t.added())
	t.more = nil
}

func (t *tape) added() chan struct{} {
	if t.more == nil {
		t.more = make(chan struct{})
	}
	return t.more
}

func (t *tape) Next(ctx context.Context) (string, string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failNext > 0 {
		t.failNext--
		return "", "", errors.New("the store is away")
	}
	for t.next == len(t.keys) {
		more := t.added()
		t.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
		}
		t.mu.Lock()
		if ctx.Err() != nil {
			return "", "", ctx.Err()
		}
	}
	if t.pace > 0 {
		t.mu.Unlock()
		<-time.After(t.pace)
		t.mu.Lock()
	}
	t.next++
	return t.keys[t.next-1], strconv.Itoa(t.next), nil
}

func (t *tape) Commit(_ context.Context, position string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failCommits > 0 {
		t.failCommits--
		return errors.New("the store is away")
	}
	t.commits++
	n, err := strconv.Atoi(position)
	t.committed = max(t.committed, n)
	return err
}

// open gives the tape; it must be closed again.
func (t *tape) open(context.Context) (consume.Feed[string], error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failOpen > 0 {
		t.failOpen--
		return nil, errors.New("the store is away")
	}
	t.opened++
	return t, nil
}

func (t *tape) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.opened--
	return nil
}

func (t *tape) position() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.committed
}

func loop(f *tape, handle func(context.Context, string) error) *consume.Loop[string] {
	return &consume.Loop[string]{
		Name: "test", Open: f.open, Key: func(s string) string { return s }, Handle: handle, Workers: 4,
		Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler),
	}
}

// run runs the loop inside a bubble until the virtual time has passed.
func run(t *testing.T, l *consume.Loop[string], d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := l.Run(ctx); err != nil {
		t.Error(err)
	}
}

func TestEachResult(t *testing.T) {
	boom := errors.New("boom")
	tests := map[string]struct {
		result    func(call int) error
		calls     int // at least, within a minute
		committed int
	}{
		"settled":           {func(int) error { return nil }, 1, 1},
		"wait then settled": {func(n int) error { return map[bool]error{true: retry.Wait(time.Second, "race")}[n < 3] }, 3, 1},
		"waits for ever":    {func(int) error { return retry.Wait(time.Second, "race") }, 10, 0},
		"parked":            {func(int) error { return retry.Park(10*time.Second, "pods") }, 5, 1},
		"error then fine":   {func(n int) error { return map[bool]error{true: boom}[n < 4] }, 4, 1},
		"error for ever":    {func(int) error { return boom }, 5, 0},
		"panic":             {func(n int) error { return map[bool]error{true: panics(n)}[false] }, 3, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, calls := &tape{keys: []string{"n1"}}, 0
				l := loop(f, func(context.Context, string) error { calls++; return tt.result(calls) })
				run(t, l, time.Minute)
				if calls < tt.calls || f.position() != tt.committed {
					t.Errorf("%d calls, position %d; want at least %d and %d", calls, f.position(), tt.calls, tt.committed)
				}
			})
		})
	}
}

func panics(n int) error { panic(fmt.Sprintf("call %d", n)) }

func TestOneKeySeriallyOthersInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &tape{keys: []string{"a", "b", "a", "c", "a"}}
		var mu sync.Mutex
		busy, most := map[string]int{}, 0
		l := loop(f, func(_ context.Context, key string) error {
			mu.Lock()
			busy[key]++
			if busy[key] > 1 {
				t.Errorf("%s is handled twice at once", key)
			}
			most = max(most, len(busy))
			mu.Unlock()
			<-time.After(time.Second)
			mu.Lock()
			delete(busy, key)
			mu.Unlock()
			return nil
		})
		run(t, l, 10*time.Second)
		if most != 3 || f.position() != 5 {
			t.Errorf("%d keys at once (want 3), position %d (want 5)", most, f.position())
		}
	})
}

func TestPositionStopsBelowTheOldestUnsettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &tape{keys: []string{"ok1", "stuck", "ok2", "ok3"}}
		l := loop(f, func(_ context.Context, key string) error {
			if key == "stuck" {
				return errors.New("not yet")
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-time.After(2 * time.Minute)
			if ok, detail := l.Ready(); ok {
				t.Errorf("ready although a delivery is stuck: %s", detail)
			}
			cancel()
		}()
		if err := l.Run(ctx); err != nil {
			t.Error(err)
		}
		if f.position() != 1 {
			t.Errorf("position %d, want 1", f.position())
		}
	})
}

// TestAStuckKeyStopsNoOther holds one key with far more deliveries than may be
// unsettled at once; others are handled all the while, a restart repeats the
// held work, and once it settles everything is committed.
func TestAStuckKeyStopsNoOther(t *testing.T) {
	const many = 200_000
	synctest.Test(t, func(t *testing.T) {
		f := &tape{keys: []string{"before"}}
		for range many {
			f.keys = append(f.keys, "stuck")
		}
		f.keys = append(f.keys, "other")
		var stuck answer
		stuck.set(errors.New("the Node cannot be patched"))
		handled := map[string]int{}
		var mu sync.Mutex
		handle := func(_ context.Context, key string) error {
			if key == "stuck" && stuck.get() != nil {
				return stuck.get()
			}
			mu.Lock()
			defer mu.Unlock()
			handled[key]++
			return nil
		}
		for run := range 2 {
			f.next = f.committed
			stop := begin(t, loop(f, handle))
			<-time.After(10 * time.Minute)
			mu.Lock()
			if handled["other"] != run+1 {
				t.Errorf("life %d: the other key was handled %d times behind a stuck one", run, handled["other"])
			}
			mu.Unlock()
			if f.position() != 1 {
				t.Errorf("life %d: position %d, want 1: the stuck key's first delivery is not settled", run, f.position())
			}
			if run == 1 {
				stuck.set(nil)
				<-time.After(2 * time.Minute)
			}
			stop()
		}
		if f.position() != many+2 || handled["stuck"] == 0 {
			t.Errorf("position %d after the key settled, want %d; it was handled %d times", f.position(), many+2, handled["stuck"])
		}
	})
}

// TestABusyKeyDelaysOthersByOneHandling: one key is delivered a thousand times a
// second and never done, and there is one worker only. Another key waits for no
// more than the handling under way, and what is not committed is what came in the
// last two.
func TestABusyKeyDelaysOthersByOneHandling(t *testing.T) {
	const handling, brief = 300 * time.Millisecond, 10 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		f := &tape{pace: time.Millisecond}
		for i := range 20_000 {
			key := "busy"
			if i%777 == 776 {
				key = fmt.Sprint("other ", i)
			}
			f.keys = append(f.keys, key)
		}
		var mu sync.Mutex
		delivered, worst, behind, handled := map[string]time.Time{}, time.Duration(0), 0, 0
		l := loop(f, func(_ context.Context, key string) error {
			if key == "busy" {
				<-time.After(handling)
				return retry.Park(time.Millisecond, "more wait")
			}
			mu.Lock()
			worst = max(worst, time.Since(delivered[key]))
			handled++
			mu.Unlock()
			<-time.After(brief)
			return nil
		})
		l.Workers = 1
		seen := 0
		l.Key = func(key string) string {
			mu.Lock()
			defer mu.Unlock()
			seen++
			delivered[key] = time.Now()
			behind = max(behind, seen-f.position())
			return key
		}
		run(t, l, 25*time.Second)
		if handled != 20_000/777 || worst > handling+brief {
			t.Errorf("%d others were handled, the last one after %s", handled, worst)
		}
		if most := 1000; behind > most {
			t.Errorf("%d deliveries were not committed, want at most %d", behind, most)
		}
	})
}

func TestASourceWakesAParkedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, calls := &tape{keys: []string{"n1"}}, 0
		l := loop(f, func(context.Context, string) error { calls++; return retry.Park(time.Hour, "pods") })
		l.Sources = append(l.Sources, func(ctx context.Context, enqueue func(string)) error {
			<-time.After(time.Second)
			enqueue("n1")
			<-ctx.Done()
			return nil
		})
		run(t, l, time.Minute)
		if calls != 2 {
			t.Errorf("%d calls, want 2", calls)
		}
	})
}

func TestBacklogComesFirstAndIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, order, tries := &tape{keys: []string{"live"}, failNext: 3}, []string{}, 0
		l := loop(f, func(_ context.Context, key string) error { order = append(order, key); return nil })
		l.Workers = 1
		l.Backlog = func(_ context.Context, enqueue func(string)) error {
			if tries++; tries < 3 {
				return errors.New("the store is away")
			}
			enqueue("old")
			return nil
		}
		run(t, l, time.Minute)
		if len(order) != 2 || order[0] != "old" || order[1] != "live" {
			t.Errorf("handled %v", order)
		}
	})
}

// TestNothingIsSkipped restarts the loop again and again while handlers fail,
// wait and park at random: in the end every key was settled after its last
// delivery, and no position was committed before that.
func TestNothingIsSkipped(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			f := &tape{}
			for range 60 {
				f.keys = append(f.keys, fmt.Sprint("n", rng.IntN(8)))
			}
			settled := map[string]int{} // key -> number of deliveries seen when it settled last
			var mu sync.Mutex
			handle := func(_ context.Context, key string) error {
				mu.Lock()
				defer mu.Unlock()
				f.mu.Lock()
				seen := f.next
				f.mu.Unlock()
				switch rng.IntN(6) {
				case 0:
					return errors.New("a fault")
				case 1:
					return retry.Wait(time.Duration(rng.IntN(50))*time.Millisecond, "a race")
				}
				settled[key] = seen
				if rng.IntN(4) == 0 {
					return retry.Park(time.Duration(rng.IntN(500))*time.Millisecond, "the world")
				}
				return nil
			}
			for range 40 { // lives of the process; each resumes where it committed
				f.next = f.committed
				run(t, loop(f, handle), time.Duration(1+rng.IntN(400))*time.Millisecond)
				for i := range f.committed {
					if settled[f.keys[i]] <= i {
						t.Fatalf("seed %d: position %d was committed, but %s was not settled after delivery %d", seed, f.committed, f.keys[i], i+1)
					}
				}
			}
			f.next = f.committed
			run(t, loop(f, handle), 10*time.Minute)
			if f.committed != len(f.keys) {
				t.Errorf("seed %d: committed %d of %d", seed, f.committed, len(f.keys))
			}
		})
	}
}
