package watch

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	testclock "k8s.io/utils/clock/testing"
)

// TestEveryObjectHasItsTurnOncePerPeriod: turns are one period apart wherever in
// it they are planned, and no tenth of a period has a fifth of the objects.
func TestEveryObjectHasItsTurnOncePerPeriod(t *testing.T) {
	const period = 5 * time.Minute
	plan := newTurns(testclock.NewFakeClock(time.Unix(0, 0)), period)
	defer plan.queue.ShutDown()
	now := time.Date(2026, 3, 1, 12, 0, 7, 3, time.UTC)
	var tenths [10]int
	for n := range 1000 {
		i := item{name: fmt.Sprint(n)}
		first := plan.wait(i, now)
		if first <= 0 || first > period {
			t.Fatalf("%s waits %s", i.name, first)
		}
		if again := plan.wait(i, now.Add(first)); again != period {
			t.Errorf("%s has its next turn %s after its turn", i.name, again)
		}
		if early := plan.wait(i, now.Add(first-1)); early != 1 {
			t.Errorf("%s has its turn %s later than planned", i.name, early-1)
		}
		tenths[(first-1)*10/period]++
	}
	for i, n := range tenths {
		if n > 200 {
			t.Errorf("tenth %d of the period has %d of 1000 objects", i, n)
		}
	}
}

// TestTurnsAreHandedOver: every object that is planned comes once, and
// the turns end with their queue.
func TestTurnsAreHandedOver(t *testing.T) {
	fake := testclock.NewFakeClock(time.Unix(1000, 0))
	plan := newTurns(fake, time.Minute)
	due := make(chan item)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		plan.run(func(items []item) {
			for _, i := range items {
				due <- i
			}
		})
	}()
	want := sets.New[item]()
	for n := range 10 {
		i := item{name: fmt.Sprint(n)}
		want.Insert(i)
		plan.plan(i, fake.Now())
	}
	fake.Step(time.Minute)
	for range 10 {
		i := <-due
		if !want.Has(i) {
			t.Errorf("%s came again", i.name)
		}
		want.Delete(i)
	}
	plan.queue.ShutDown()
	<-ended
}
