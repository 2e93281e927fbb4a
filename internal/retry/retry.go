// Package retry controls how work is retried: the errors with which a handler sets its next
// try (every other error means "again, with backoff"; package consume carries them out), the
// wait between two tries or for news, and where a row of failures begins and ends.
package retry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Sleep waits for d, or until ctx ends, and reports whether ctx goes on.
func Sleep(ctx context.Context, c clock.Clock, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return ctx.Err() == nil
	}
}

// Every calls do after each d until ctx ends.
func Every(ctx context.Context, c clock.WithTicker, d time.Duration, do func()) {
	ticker := c.NewTicker(d)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			do()
		}
	}
}

// Wake is how somebody who waits for news is woken: calls that come before the last one was
// taken are one.
type Wake chan struct{}

// NewWake is one that nobody has called.
func NewWake() Wake { return make(Wake, 1) }

// Call wakes who waits; it never blocks.
func (w Wake) Call() {
	select {
	case w <- struct{}{}:
	default: // it is woken already
	}
}

// Outage is the row of failures until now. Its zero value has none. It is safe for
// concurrent use.
type Outage struct {
	mu  sync.Mutex
	err error
}

// Note takes the result of one try: whether a row of failures begins with it, or ends.
func (o *Outage) Note(err error) (begins, ends bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	begins, ends = err != nil && o.err == nil, err == nil && o.err != nil
	o.err = err
	return begins, ends
}

// Ready reports whether the last try succeeded, and if not, why it failed. Before the
// first try it is ready.
func (o *Outage) Ready() (bool, string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return false, o.err.Error()
	}
	return true, ""
}

// MaxWait is the longest time a position is held by one Wait; longer waits are
// cut to it. Whatever needs longer waits on the world and has to Park.
const MaxWait = time.Minute

type wait struct {
	after time.Duration
	why   string
}

func (w *wait) Error() string {
	return fmt.Sprintf("%s (retrying in %s, position held)", w.why, w.after)
}

type park struct {
	after time.Duration
	why   string
}

func (p *park) Error() string {
	return fmt.Sprintf("%s (parked, retrying in %s)", p.why, p.after)
}

// Wait asks for another try after d, at most MaxWait, with the feed's position
// held: for a lost race or a cold cache.
func Wait(d time.Duration, why string) error {
	return &wait{after: min(max(d, 0), MaxWait), why: why}
}

// raceWait bounds the time that a lost race waits: a try takes some requests to servers,
// which is what keeps a loser that goes on losing from being a burden.
const raceWait = 10 * time.Millisecond

// Race asks for another try at once, after somebody else was faster; the moment is
// random, so that the losers of a race do not meet in the next one.
func Race(why string) error { return Wait(rand.N(raceWait), why) }

// Park lets the position go: durable state is written, the key is asked again
// after d, at once when it is enqueued, and found by the backlog after a restart.
func Park(d time.Duration, why string) error {
	return &park{after: max(d, 0), why: why}
}

// AsWait returns the parts of err, or of what it wraps, if that is a Wait.
func AsWait(err error) (d time.Duration, why string, ok bool) {
	if e, found := errors.AsType[*wait](err); found {
		return e.after, e.why, true
	}
	return 0, "", false
}

// AsPark returns the parts of err, or of what it wraps, if that is a Park.
func AsPark(err error) (d time.Duration, why string, ok bool) {
	if e, found := errors.AsType[*park](err); found {
		return e.after, e.why, true
	}
	return 0, "", false
}
