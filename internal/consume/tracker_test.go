package consume

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// entry is one delivery of the list that the tracker is compared with.
type entry struct {
	key string
	// upTo is the number of the delivery that must be seen before it is settled.
	upTo    int
	settled bool
}

// list does at length what the tracker does.
type list []entry

func (l *list) receive(key string) {
	number, last := len(*l)+1, -1
	waiting := 0
	for i, e := range *l {
		if e.key == key && !e.settled {
			waiting, last = waiting+1, i
		}
	}
	if waiting == perKey {
		(*l)[last].upTo = number
	}
	*l = append(*l, entry{key: key, upTo: number, settled: waiting == perKey})
}

func (l list) settle(key string, upTo int) {
	for i := range l {
		if l[i].key == key && l[i].upTo <= upTo {
			l[i].settled = true
		}
	}
}

// position is how many are settled without a gap; unsettled counts entries.
func (l list) position() (position, unsettled int) {
	for position < len(l) && l[position].settled {
		position++
	}
	for _, e := range l {
		if !e.settled {
			unsettled++
		}
	}
	return position, unsettled
}

// TestTrackerAgainstAList compares the tracker with a plain list at random, and
// both with the promise: no position before all up to it were seen by a handling
// of their key that began later.
func TestTrackerAgainstAList(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		g := newTracker()
		var all list
		seen := map[string]int{}
		for step := range 300 {
			key := fmt.Sprint("k", rng.IntN(6))
			if rng.IntN(3) > 0 {
				all.receive(key)
				g.receive(key, strconv.Itoa(len(all)), time.Unix(int64(len(all)), 0))
			} else {
				upTo := rng.IntN(len(all) + 1)
				all.settle(key, upTo)
				g.settle(key, uint64(upTo))
				seen[key] = max(seen[key], upTo)
			}
			want, unsettled := all.position()
			got, err := strconv.Atoi("0" + g.done)
			if err != nil || got != want || g.unsettled != unsettled {
				t.Fatalf("seed %d, step %d: position %d and %d unsettled, want %d and %d", seed, step, got, g.unsettled, want, unsettled)
			}
			for i, e := range all[:got] {
				if seen[e.key] <= i {
					t.Fatalf("seed %d, step %d: position %d, but %s was seen up to %d only", seed, step, got, e.key, seen[e.key])
				}
			}
			if _, at, ok := g.oldest(); ok != (want < len(all)) || (ok && at.Unix() != int64(want+1)) {
				t.Fatalf("seed %d, step %d: oldest of %s, %v", seed, step, at, ok)
			}
			if n := size(g); n > 2*unsettled+1 || unsettled > 6*perKey {
				t.Fatalf("seed %d, step %d: %d entries for %d unsettled", seed, step, n, unsettled)
			}
		}
		for k := range 6 {
			g.settle(fmt.Sprint("k", k), g.count)
		}
		if g.done != strconv.Itoa(len(all)) || g.head != nil || len(g.byKey) != 0 {
			t.Fatalf("seed %d: after all is settled the position is %s of %d", seed, g.done, len(all))
		}
	}
}

func size(g *tracker) int {
	n := 0
	for d := g.head; d != nil; d = d.next {
		n++
	}
	return n
}

// numbers is an endless feed.
type numbers struct{ read int }

func (n *numbers) Next(ctx context.Context) (string, string, error) {
	n.read++
	return fmt.Sprint("k", n.read), strconv.Itoa(n.read), ctx.Err()
}
func (n *numbers) Commit(context.Context, string) error { return nil }
func (n *numbers) Close() error                         { return nil }

func TestFeedPausesWhileTooMuchIsUnsettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &numbers{}
		open := make(chan struct{})
		l := &Loop[string]{
			Open: func(context.Context) (Feed[string], error) { return f, nil }, Key: func(s string) string { return s }, Workers: 2,
			Handle: func(ctx context.Context, _ string) error {
				select {
				case <-open:
					<-time.After(time.Second)
				case <-ctx.Done():
				}
				return ctx.Err()
			},
		}
		l.once.Do(l.start)
		l.limit = 10
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		synctest.Wait()
		if f.read != 10 {
			t.Errorf("%d deliveries were read, want 10", f.read)
		}
		close(open)
		<-time.After(10*time.Second + time.Millisecond)
		synctest.Wait()
		if f.read != 30 {
			t.Errorf("%d deliveries were read after 20 were settled, want 30", f.read)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
