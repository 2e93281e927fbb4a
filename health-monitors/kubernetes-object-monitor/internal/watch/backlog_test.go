package watch

import (
	"fmt"
	"testing"

	"k8s.io/client-go/util/workqueue"
)

// TestAChangeOvertakesTheBacklog: a change waits behind as many others as there
// are workers, and every object of the backlog comes once in the end.
func TestAChangeOvertakesTheBacklog(t *testing.T) {
	queue := workqueue.NewTyped[item]()
	defer queue.ShutDown()
	b := backlog{queue: queue, short: 3}
	var all []item
	for i := range 1000 {
		all = append(all, item{name: fmt.Sprint(i)})
	}
	b.add(all)
	b.add(all) // a second period before the first is over
	change := item{name: "changed"}
	queue.Add(change)
	seen := map[item]int{}
	for n := 1; queue.Len() > 0; n++ {
		i, _ := queue.Get()
		if i == change && n > 4 {
			t.Errorf("the change came as number %d", n)
		}
		seen[i]++
		queue.Done(i)
		b.feed()
	}
	for _, i := range append(all, change) {
		if seen[i] < 1 || seen[i] > 2 {
			t.Errorf("%s came %d times", i.name, seen[i])
		}
	}
	if len(b.items) != 0 || len(b.waiting) != 0 {
		t.Errorf("%d objects are left", len(b.items))
	}
}

// TestTheBacklogGoesOnPastAnObjectInHand: what is being dealt with is not queued
// a second time, and must not hold up the rest.
func TestTheBacklogGoesOnPastAnObjectInHand(t *testing.T) {
	queue := workqueue.NewTyped[item]()
	defer queue.ShutDown()
	b := backlog{queue: queue, short: 1}
	busy := item{name: "busy"}
	queue.Add(busy)
	got, _ := queue.Get()
	b.add([]item{busy, {name: "next"}})
	if queue.Len() != 1 {
		t.Fatalf("%d objects are queued", queue.Len())
	}
	queue.Done(got)
	b.feed()
	for range 2 {
		i, _ := queue.Get()
		queue.Done(i)
		b.feed()
	}
	if queue.Len() != 0 || len(b.items) != 0 {
		t.Errorf("%d are queued, %d wait", queue.Len(), len(b.items))
	}
}
