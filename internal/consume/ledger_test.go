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

// TestLedgerAgainstAList compares the ledger with a plain list at random.
func TestLedgerAgainstAList(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		g := newLedger()
		type entry struct {
			key     string
			settled bool
		}
		var list []entry
		for step := range 300 {
			key := fmt.Sprint("k", rng.IntN(6))
			if rng.IntN(2) == 0 {
				list = append(list, entry{key: key})
				g.receive(key, strconv.Itoa(len(list)), time.Unix(int64(len(list)), 0))
			} else {
				upTo := rng.IntN(len(list) + 1)
				for i := range list[:upTo] {
					if list[i].key == key {
						list[i].settled = true
					}
				}
				g.settle(key, uint64(upTo))
			}
			want, unsettled := 0, 0
			for want < len(list) && list[want].settled {
				want++
			}
			for _, e := range list {
				if !e.settled {
					unsettled++
				}
			}
			got, err := strconv.Atoi("0" + g.done)
			if err != nil || got != want || g.unsettled != unsettled {
				t.Fatalf("seed %d, step %d: position %d and %d unsettled, want %d and %d", seed, step, got, g.unsettled, want, unsettled)
			}
			if _, at, ok := g.oldest(); ok != (want < len(list)) || (ok && at.Unix() != int64(want+1)) {
				t.Fatalf("seed %d, step %d: oldest of %s, %v", seed, step, at, ok)
			}
			if n := size(g); n > 2*unsettled+1 {
				t.Fatalf("seed %d, step %d: %d entries for %d unsettled", seed, step, n, unsettled)
			}
		}
	}
}

func size(g *ledger) int {
	n := 0
	for d := g.head; d != nil; d = d.next {
		n++
	}
	return n
}

// numbers is an endless feed.
type numbers struct{ read int }

func (f *numbers) Next(ctx context.Context) (string, string, error) {
	f.read++
	return fmt.Sprint("k", f.read), strconv.Itoa(f.read), ctx.Err()
}
func (f *numbers) Commit(context.Context, string) error { return nil }
func (f *numbers) Close() error                         { return nil }

func TestTheFeedRestsWhileTooMuchIsUnsettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &numbers{}
		open := make(chan struct{})
		l := &Loop[string]{
			Feed: f, Key: func(s string) string { return s }, Workers: 2,
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
