// Package polling polls something in a loop and reports whether the last poll succeeded.
package polling

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// longest is Rounds.Longest where nothing else is set.
const longest = 10 * time.Minute

// Rounds are looks at something. Its fields are set before it is used.
type Rounds struct {
	// Poll takes one look.
	Poll func(ctx context.Context) error
	// Interval is the time from look to look.
	Interval time.Duration
	// Longest is how long a look may take until readiness reports that it hangs: ten
	// minutes where it is 0, and never less than three intervals.
	Longest time.Duration
	Clock   clock.WithTicker
	Log     *slog.Logger
	// Fails is logged with the first failure of a row, Works with its end; NotYet is
	// what readiness reports until a look went well.
	Fails, Works, NotYet string
	// Failed hears of each failure, and whether it is another one than that of the look
	// before; may be nil.
	Failed func(another bool)

	mu     sync.Mutex
	polled bool
	ailing error
	began  time.Time // of the look that is under way; zero between two
}

// Ready reports whether the last look went well and the next one does not hang, and if
// not, why.
func (r *Rounds) Ready() (bool, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.began.IsZero() {
		if took := r.Clock.Since(r.began); took > max(cmp.Or(r.Longest, longest), 3*r.Interval) {
			return false, fmt.Sprintf("a poll has been running for %s", took.Round(time.Second))
		}
	}
	switch {
	case r.ailing != nil:
		return false, r.ailing.Error()
	case !r.polled:
		return false, r.NotYet
	}
	return true, ""
}

// Run looks until the context ends; its error is always nil. What failed is followed
// by the next look.
func (r *Rounds) Run(ctx context.Context) error {
	tick := r.Clock.NewTicker(r.Interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		r.Once(ctx)
		select {
		case <-ctx.Done():
		case <-tick.C():
		}
	}
	return nil
}

// Once polls once. A failure after the end of the context does not count.
func (r *Rounds) Once(ctx context.Context) {
	r.begin(r.Clock.Now())
	err := r.Poll(ctx)
	r.begin(time.Time{})
	if ctx.Err() == nil {
		r.note(err)
	}
}

func (r *Rounds) begin(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.began = at
}

// note logs the first failure of a row and its end.
func (r *Rounds) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	another := err != nil && (r.ailing == nil || r.ailing.Error() != err.Error())
	if another {
		r.Log.Warn(r.Fails, "error", err)
	}
	if err != nil && r.Failed != nil {
		r.Failed(another)
	}
	if err == nil && r.ailing != nil {
		r.Log.Info(r.Works)
	}
	r.ailing, r.polled = err, r.polled || err == nil
}
