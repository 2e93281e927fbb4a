// Package testkit holds what the tests of several services share: waiting for a
// condition, a clock that is set manually, builders of records.
package testkit

import (
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// Start is the time at which clocks and records of tests begin.
var Start = time.Date(2026, time.January, 2, 3, 4, 5, 0, time.UTC)

// Clock is set manually (Step, SetTime).
type Clock = clocktesting.FakeClock

// NewClock returns a Clock that stands at Start.
func NewClock() *Clock { return clocktesting.NewFakeClock(Start) }

// TB is what this package needs of a test.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

const (
	// poll is the shortest time between two looks at a condition.
	poll = 5 * time.Millisecond
	// pollBackoffFactor is how many times as long as the last look the time to the next one is,
	// at least: looks that cost much leave the processor to what is waited for.
	pollBackoffFactor = 3
	// maxPollBackoff bounds that.
	maxPollBackoff = time.Second
)

// Until looks at cond every few milliseconds until it is true, and fails the
// test when d is over first. A cond that takes long is looked at less often.
func Until(t TB, d time.Duration, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(d)
	defer deadline.Stop()
	for {
		began := time.Now()
		if cond() {
			return
		}
		select {
		case <-time.After(min(max(poll, pollBackoffFactor*time.Since(began)), maxPollBackoff)):
		case <-deadline.C:
			t.Fatalf("the condition is not true after %s", d)
			return
		}
	}
}
