// Package testkit holds what the tests of several rooms share: waiting for a
// condition, a clock that is set by hand, builders of records.
package testkit

import (
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// Start is the time at which clocks and records of tests begin.
var Start = time.Date(2026, time.January, 2, 3, 4, 5, 0, time.UTC)

// Clock is set by hand (Step, SetTime).
type Clock = clocktesting.FakeClock

// NewClock returns a Clock that stands at Start.
func NewClock() *Clock { return clocktesting.NewFakeClock(Start) }

// TB is what this package needs of a test.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// poll is the time between two looks at a condition.
const poll = 5 * time.Millisecond

// Until looks at cond every few milliseconds until it is true, and fails the
// test when d is over first.
func Until(t TB, d time.Duration, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	deadline := time.NewTimer(d)
	defer deadline.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("the condition is not true after %s", d)
			return
		}
	}
}
