package reconciler

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// crowd lets n evictions of a node wait at the semaphore; each that enters writes
// the node's name and leaves when it receives from done.
type crowd struct {
	g       *semaphore
	entered chan string
	done    chan struct{}
}

func (c *crowd) wait(ctx context.Context, node string, n int) {
	for range n {
		go func() {
			leave, err := c.g.enter(ctx, node)
			if err != nil {
				return
			}
			c.entered <- node
			<-c.done
			leave()
		}()
		synctest.Wait() // one after the other, so that the order is known
	}
}

func TestNodesEnterInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{g: newSemaphore(1, 0), entered: make(chan string, 100), done: make(chan struct{})}
		c.wait(t.Context(), "large", 10)
		c.wait(t.Context(), "small", 1)
		c.wait(t.Context(), "middle", 2)
		var order []string
		for range 13 {
			order = append(order, <-c.entered)
			c.done <- struct{}{}
			synctest.Wait()
		}
		want := "large large small middle large middle large large large large large large large"
		if got := strings.Join(order, " "); got != want {
			t.Errorf("entered %s\nwant    %s", got, want)
		}
		if len(c.g.lines) != 0 || len(c.g.turns) != 0 || c.g.free != 1 {
			t.Errorf("left behind: lines %v, turns %v, free %d", c.g.lines, c.g.turns, c.g.free)
		}
	})
}

func TestTheGateIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{g: newSemaphore(3, 0), entered: make(chan string, 100), done: make(chan struct{})}
		c.wait(t.Context(), "n", 10)
		if n := len(c.entered); n != 3 {
			t.Errorf("%d are in at once, want 3", n)
		}
		for range 10 {
			c.done <- struct{}{}
		}
		synctest.Wait()
		if n := len(c.entered); n != 10 {
			t.Errorf("%d came in, want 10", n)
		}
	})
}

func TestTheRateIsACeilingForAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newSemaphore(100, 5)
		began := time.Now()
		var at []time.Duration
		for i := range 11 {
			leave, err := g.enter(t.Context(), []string{"a", "b", "c"}[i%3])
			if err != nil {
				t.Fatal(err)
			}
			at = append(at, time.Since(began))
			leave()
		}
		if at[0] != 0 || at[10] != 2*time.Second {
			t.Errorf("entered at %v, want the first at once and the eleventh after 2s", at)
		}
	})
}

func TestCancelledWaiterTakesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, perSecond := range []float64{0, 0.01} {
			c := &crowd{g: newSemaphore(1, perSecond), entered: make(chan string, 100), done: make(chan struct{})}
			c.wait(t.Context(), "first", 1)
			ctx, cancel := context.WithCancel(t.Context())
			c.wait(ctx, "goes", 3)
			c.wait(t.Context(), "stays", 1)
			cancel()
			synctest.Wait()
			if _, err := c.g.enter(ctx, "goes"); !errors.Is(err, context.Canceled) {
				t.Errorf("entering after the end: %v", err)
			}
			<-c.entered
			c.done <- struct{}{}
			if got := <-c.entered; got != "stays" {
				t.Errorf("%s entered, want stays", got)
			}
			c.done <- struct{}{}
			synctest.Wait()
			if len(c.g.lines) != 0 || len(c.g.turns) != 0 || c.g.free != 1 {
				t.Errorf("left behind: lines %v, turns %v, free %d", c.g.lines, c.g.turns, c.g.free)
			}
		}
	})
}
