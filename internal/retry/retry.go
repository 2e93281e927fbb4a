// Package retry is about work that is tried again: the errors with which a handler says when
// (every other error means "again, with backoff"; package consume carries them out), the
// wait between two tries, and where a row of failures begins and ends.
package retry

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Sleep waits for d, or until ctx ends, and says whether ctx goes on.
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

// Ready says whether the last try succeeded, and if not, why it failed. Before the
// first try it is ready.
func (o *Outage) Ready() (bool, string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return false, o.err.Error()
	}
	return true, ""
}
