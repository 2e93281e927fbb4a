package daemon

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

func TestTheHeapGrowsUnderLoadOnly(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Unix(0, 0))
	var set []int
	p := &pace{clock: now, percent: 300, last: now.Now(), set: func(percent int) { set = append(set, percent) }}
	collect := func(after time.Duration, last bool) {
		now.SetTime(now.Now().Add(after))
		p.collected(last)
	}
	collect(2*time.Minute, false)
	collect(time.Second, false)
	if set != nil {
		t.Errorf("at rest: %v", set)
	}
	collect(999*time.Millisecond, false)
	collect(10*time.Second, false) // the heap is larger now: collections are rarer under the same load
	if !slices.Equal(set, []int{300}) {
		t.Errorf("under load: %v", set)
	}
	collect(11*time.Second, false)
	if !slices.Equal(set, []int{300, 100}) {
		t.Errorf("after the load: %v", set)
	}
	collect(time.Millisecond, false)
	collect(time.Millisecond, true)
	collect(time.Millisecond, true)
	if !slices.Equal(set, []int{300, 100, 300, 100}) {
		t.Errorf("at the end: %v", set)
	}
}

// TestCollectionsAreHeardOf: each one, and none any more when the service has ended.
func TestCollectionsAreHeardOf(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	now, set := testclock.NewFakePassiveClock(time.Unix(0, 0)), make(chan int, 1)
	p := &pace{clock: now, percent: 300, last: now.Now(), set: func(percent int) { set <- percent }}
	p.follow(ctx)
	next := func() int {
		for {
			runtime.GC()
			select {
			case percent := <-set:
				return percent
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	if got := next(); got != 300 {
		t.Errorf("set to %d", got)
	}
	cancel()
	if got := next(); got != 100 {
		t.Errorf("set to %d at the end", got)
	}
}

func TestGOGCGoesBeforeTheHeapsGrowth(t *testing.T) {
	for name, tc := range map[string]struct {
		gogc    string
		percent int
		want    bool
	}{
		"a percentage": {"", 300, true}, "Go's own": {"", 100, false}, "GOGC": {"50", 300, false},
	} {
		lookup := func(key string) (string, bool) { return tc.gogc, key == "GOGC" && tc.gogc != "" }
		if got := grows(tc.percent, lookup); got != tc.want {
			t.Errorf("%s: the heap grows: %v", name, got)
		}
	}
}

// growing is a configuration that states how the heap may grow.
type growing struct{}

func (growing) Growth() int { return 300 }

func TestConfiguredHeapGrowth(t *testing.T) {
	got := 0
	in := invocation{grow: func(_ context.Context, percent int) { got = percent }}
	if in.own(t.Context(), nil, growing{}); got != 300 {
		t.Errorf("the heap grows by %d", got)
	}
	got = 0
	if in.own(t.Context(), nil, settings{}); got != 0 {
		t.Errorf("without a word it grows by %d", got)
	}
	invocation{}.own(t.Context(), nil, growing{}) // in a test of a service nothing is the process's own
}
