package consume_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/internal/crashloop"
)

// world is what outlives the process: records by key, and its memory.
type world struct {
	t            *testing.T
	mu           sync.Mutex // guards what follows
	records      map[string][]string
	feed         *tape
	past         crashloop.Past
	deadLettered []string
	saves        int
	away         bool          // the memory cannot be reached
	slow         time.Duration // a write of the memory takes
	process      *crashloop.Process
	beside       *world // dies with this one: both are of one process
	now          *processRun

	handled []string // keys that were handled to the end, in this life
	runs    int
}

// processRun is one process: what it does after its death does not happen.
type processRun struct {
	*world
	die  context.CancelFunc
	dead bool
}

var errDead = errors.New("this process is dead")

func (pr *processRun) Load(context.Context) (crashloop.Past, error) {
	if pr.away {
		return crashloop.Past{}, errors.New("the store is away")
	}
	return pr.past, nil
}

func (pr *processRun) Save(_ context.Context, p crashloop.Past) error {
	<-time.After(pr.slow)
	pr.mu.Lock()
	defer pr.mu.Unlock()
	if pr.dead {
		return errDead
	}
	if pr.away {
		return errors.New("the store is away")
	}
	pr.past = p
	pr.saves++
	return nil
}

func (pr *processRun) MoveToDeadLetters(_ context.Context, f crashloop.Work) error {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	pr.deadLettered = append(pr.deadLettered, f.Record)
	return nil
}

func (pr *processRun) IsDeadLetter(id string) bool {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	return slices.Contains(pr.deadLettered, id)
}

func (pr *processRun) Count() int { return len(pr.deadLettered) }

func (pr *processRun) kill() {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	pr.dead = true
	pr.die()
	if pr.beside != nil {
		pr.beside.now.kill()
	}
}

// live runs a process for so long, unless it dies; kills decides at which record it does,
// and outside kills it at a time.
func (w *world) live(d time.Duration, kills func(id string) bool, handle func(context.Context, string), outside time.Duration) (died bool) {
	ctx, cancel := context.WithTimeout(w.t.Context(), d)
	defer cancel()
	l := &processRun{world: w, die: cancel}
	w.runs++
	w.handled, w.now = nil, l
	if outside > 0 {
		time.AfterFunc(outside, l.kill)
	}
	try := func(id string) {
		if kills(id) {
			l.kill()
		}
	}
	loop := loop(w.feed, func(ctx context.Context, key string) error {
		for _, id := range w.records[key] {
			if !l.IsDeadLetter(id) {
				try(id)
			}
		}
		handle(ctx, key)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.dead {
			return errDead
		}
		w.handled = append(w.handled, key)
		return nil
	})
	if w.feed == nil {
		loop.Open = nil
	}
	loop.Key = func(key string) string { try(key); return key }
	loop.Backlog = func(_ context.Context, enqueue func(string)) error {
		for _, key := range []string{"bad", "a", "b", "c"} {
			if len(w.records[key]) > 0 {
				enqueue(key)
			}
		}
		return nil
	}
	loop.Vet = &consume.Vetting[string]{
		Process: w.process, Memory: l, ID: func(key string) string { return key },
		Records: func(_ context.Context, key string, each func(string) error) error {
			for _, id := range w.records[key] {
				if !l.IsDeadLetter(id) {
					if err := each(id); err != nil {
						return err
					}
				}
			}
			return nil
		},
		Try: func(_ context.Context, id string) { try(id) },
	}
	if err := loop.Run(ctx); err != nil {
		w.t.Error(err)
	}
	return l.dead
}

func nothing(context.Context, string) {}

func is(ids ...string) func(string) bool {
	return func(id string) bool { return slices.Contains(ids, id) }
}

// TestPoisonRecordIsDeadLettered: the process dies of one record of the first
// node; the other nodes are served before it is found, its own after.
func TestPoisonRecordIsDeadLettered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, records: map[string][]string{"bad": {"1", "2", "poison", "4"}, "a": {"5"}, "b": {"6"}, "c": {"7"}}}
		others := 0
		for w.live(time.Hour, is("poison"), nothing, 0) {
			if w.runs > 10 {
				t.Fatalf("the process dies for ever; it remembers %+v", w.past)
			}
			if len(w.handled) == 3 && others == 0 {
				others = w.runs
			}
		}
		if others == 0 || others > 4 {
			t.Errorf("the other keys were served first in life %d, want 4 at most", others)
		}
		if diff := cmp.Diff([]string{"poison"}, w.deadLettered); diff != "" || w.runs != 7 {
			t.Errorf("in life %d set aside (-want +got):\n%s", w.runs, diff)
		}
		if slices.Sort(w.handled); !slices.Equal(w.handled, []string{"a", "b", "bad", "c"}) {
			t.Errorf("handled then: %v", w.handled)
		}
		if w.past != (crashloop.Past{}) {
			t.Errorf("after an hour it still remembers %+v", w.past)
		}
	})
}

// TestTheOthersOfAProcessAreNotBlamed: the record of one controller ends the process of
// two. The other one is busy all the time, and never suspects a key of its own.
func TestTheOthersOfAProcessAreNotBlamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := &world{t: t, records: map[string][]string{"bad": {"1", "poison"}, "a": {"2"}}}
		good := &world{t: t, records: map[string][]string{"bad": {"1", "poison"}, "a": {"3"}, "b": {"4"}, "c": {"5"}}}
		busy := func(context.Context, string) { time.Sleep(3 * time.Second) }
		died := true
		for died {
			if bad.runs > 10 {
				t.Fatalf("the process dies for ever; it remembers %+v", bad.past)
			}
			bad.process = crashloop.NewProcess()
			bad.beside, good.process = good, bad.process
			var other sync.WaitGroup
			other.Go(func() { good.live(time.Hour, is(), busy, 0) })
			synctest.Wait() // it is busy
			died = bad.live(time.Hour, is("poison"), busy, 0)
			other.Wait()
			if good.past.Suspect != (crashloop.Work{}) || good.past.InFlight != (crashloop.Work{}) {
				t.Fatalf("in life %d the other one remembers %+v", good.runs, good.past)
			}
		}
		if !slices.Equal(bad.deadLettered, []string{"poison"}) || len(good.deadLettered) > 0 {
			t.Errorf("set aside %v, and of the other one %v", bad.deadLettered, good.deadLettered)
		}
	})
}

// TestPoisonDeliveryIsDeadLettered: the process dies while it reads the feed.
func TestPoisonDeliveryIsDeadLettered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, records: map[string][]string{}}
		for {
			// The feed resumes behind what was committed.
			done := 0
			if w.feed != nil {
				done = w.feed.position()
			}
			w.feed = &tape{keys: []string{"a", "poison", "b"}, next: done, committed: done}
			if !w.live(time.Hour, is("poison"), nothing, 0) {
				break
			}
			if w.runs > 10 {
				t.Fatalf("the process dies for ever; it remembers %+v", w.past)
			}
		}
		if diff := cmp.Diff([]string{"poison"}, w.deadLettered); diff != "" || w.feed.position() != 3 {
			t.Errorf("in life %d, at position %d, set aside (-want +got):\n%s", w.runs, w.feed.position(), diff)
		}
	})
}

// TestOtherCrashesAreNotAttributed kills the process from outside, again and
// again, while the same handler waits for somebody, or at any time.
func TestOtherCrashesAreNotAttributed(t *testing.T) {
	waits := func(ctx context.Context, key string) {
		if key == "bad" {
			<-ctx.Done()
		}
	}
	for name, handle := range map[string]func(context.Context, string){"the handler waits": waits, "it is idle": nothing} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{t: t, records: map[string][]string{"bad": {"1"}, "a": {"2"}, "b": {"3"}}}
				served := 0
				for range 40 {
					if !w.live(time.Hour, is(), handle, 5*time.Minute+time.Second) {
						t.Fatal("it was not killed")
					}
					if slices.Contains(w.handled, "a") && slices.Contains(w.handled, "b") {
						served++
					}
				}
				if len(w.deadLettered) > 0 || served < 36 {
					t.Errorf("set aside %v; the others were served in %d of 40 lives", w.deadLettered, served)
				}
			})
		})
	}
}

// TestSlowStoreIsNotAttributed: the process dies of something else at the same time
// of each life, while the note that a record was tried is being written.
func TestSlowStoreIsNotAttributed(t *testing.T) {
	for at := 30 * time.Second; at < 3*time.Minute; at += time.Second {
		synctest.Test(t, func(t *testing.T) {
			w := &world{t: t, records: map[string][]string{"bad": {"1"}, "a": {"2"}}, slow: 5 * time.Second}
			waits := func(ctx context.Context, key string) { // so that nothing else is in flight at the end
				if key == "bad" {
					<-ctx.Done()
				}
			}
			for range 12 {
				w.live(time.Hour, is(), waits, at)
			}
			if len(w.deadLettered) > 0 {
				t.Errorf("killed %s after each start: set aside %v", at, w.deadLettered)
			}
		})
	}
}

func TestShutdownIsNoCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, records: map[string][]string{"a": {"1"}}}
		for range 10 {
			w.live(time.Second, is(), nothing, 0)
			if w.past != (crashloop.Past{}) {
				t.Fatalf("after a stop it remembers %+v", w.past)
			}
		}
	})
}

// TestNormalRunCostsTwoWrites: a run without a crash costs two writes, however much it handles.
func TestNormalRunCostsTwoWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, records: map[string][]string{"a": {"1"}}, feed: &tape{}}
		for range 1000 {
			w.feed.keys = append(w.feed.keys, "a", "b")
		}
		if w.live(time.Hour, is(), nothing, 0); w.saves != 2 {
			t.Errorf("%d writes, want 2", w.saves)
		}
	})
}

// TestIsolationModeEnds: after ten minutes everything goes at once again.
func TestIsolationModeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, records: map[string][]string{"a": {"1"}, "b": {"2"}, "c": {"3"}}, past: crashloop.Past{Starts: 2}}
		began := time.Now()
		var now, most atomic.Int32
		w.live(time.Hour, is(), func(ctx context.Context, _ string) {
			n := now.Add(1)
			if time.Since(began) < time.Minute && n > 1 {
				t.Error("two things at once in a careful life")
			}
			most.Store(max(most.Load(), n))
			select {
			case <-time.After(9 * time.Minute):
			case <-ctx.Done():
			}
			now.Add(-1)
		}, 0)
		if most.Load() < 2 {
			t.Error("one thing at a time for ever")
		}
	})
}

// TestTwoLoopsShareOneAccount: loops of one process that share a Vetting count one
// start, have one thing in flight among them, and end the account together.
func TestTwoLoopsShareOneAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, past: crashloop.Past{Starts: 2}}
		short, end := context.WithTimeout(t.Context(), 30*time.Second)
		defer end()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		vet := &consume.Vetting[string]{Memory: &processRun{world: w, die: cancel}, ID: func(key string) string { return key }}
		var now, handled atomic.Int32
		var both sync.WaitGroup
		for name, ctx := range map[string]context.Context{"one": short, "two": ctx} {
			one := loop(&tape{keys: []string{name + " a", name + " b", name + " c"}}, func(context.Context, string) error {
				if now.Add(1) > 1 {
					t.Error("two things at once in a careful life")
				}
				<-time.After(time.Second)
				w.mu.Lock()
				if w.past.Starts != 3 || w.past.InFlight == (crashloop.Work{}) {
					t.Errorf("it remembers %+v, want start 3 with something in flight", w.past)
				}
				w.mu.Unlock()
				handled.Add(1)
				now.Add(-1)
				return nil
			})
			one.Vet = vet
			both.Go(func() {
				if err := one.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		<-time.After(45 * time.Second)
		w.mu.Lock()
		if w.past.Starts != 3 {
			t.Errorf("while one loop runs it remembers %+v", w.past)
		}
		w.mu.Unlock()
		both.Wait()
		if w.past != (crashloop.Past{}) || handled.Load() != 6 {
			t.Errorf("after a stop it remembers %+v; %d keys handled, want 6", w.past, handled.Load())
		}
	})
}

// TestWithoutItsMemory: without its memory, a loop works as before.
func TestWithoutItsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, records: map[string][]string{"a": {"1"}}, away: true}
		if w.live(time.Minute, is(), nothing, 0); !slices.Equal(w.handled, []string{"a"}) {
			t.Errorf("handled %v", w.handled)
		}
	})
}
