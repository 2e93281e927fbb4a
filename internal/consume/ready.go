package consume

import (
	"fmt"
	"time"
)

// Ready tells whether the loop keeps up, and what holds it. A loop that has
// not started is a standby, which is ready; one that reads its backlog is not.
func (l *Loop[R]) Ready() (ok bool, detail string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.phase {
	case idle:
		return true, "standing by"
	case catchingUp:
		for source, what := range map[string]string{opening: opening, "backlog": "reading the backlog"} {
			if h, failing := l.trouble[source]; failing {
				return false, what + " fails: " + h.why
			}
		}
		return false, "reading the backlog"
	case stopped:
		return false, "stopped"
	case live:
	}
	now := l.Clock.Now()
	if what, h, found := l.longest(now); found {
		return false, fmt.Sprintf("%s held for %s: %s", what, now.Sub(h.since).Round(time.Second), h.why)
	}
	return true, fmt.Sprintf("live, %d unsettled", l.tracker.unsettled)
}

// longest finds what has been held longer than StuckAfter, the oldest first.
// The caller holds the lock.
func (l *Loop[R]) longest(now time.Time) (what string, longest hold, found bool) {
	consider := func(name string, h hold) {
		if now.Sub(h.since) >= l.StuckAfter && (!found || h.since.Before(longest.since)) {
			what, longest, found = name, h, true
		}
	}
	for key, h := range l.held {
		consider(title(key), h)
	}
	for name, h := range l.trouble {
		if !h.over(now) {
			consider(name, h)
		}
	}
	if key, at, ok := l.tracker.oldest(); ok {
		why := "waiting for a worker"
		if h, known := l.held[key]; known {
			why = h.why
		}
		consider(title(key), hold{since: at, why: why})
	}
	return what, longest, found
}

// title names a key for people.
func title(key string) string {
	if key == keyless {
		return "a delivery without a key"
	}
	return "key " + key
}

// state is what the gauges show.
func (l *Loop[R]) state() gauges {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.Clock.Now()
	g := gauges{queue: float64(l.queue.Len()), unsettled: float64(l.tracker.unsettled)}
	if _, at, ok := l.tracker.oldest(); ok {
		g.oldest = now.Sub(at).Seconds()
	}
	for _, h := range l.held {
		g.oldest = max(g.oldest, now.Sub(h.since).Seconds())
	}
	if _, _, stuck := l.longest(now); stuck {
		g.stuck = 1
	}
	if l.Vet != nil {
		g.aside = float64(l.Vet.Memory.Count())
	}
	if l.crashLoop.Isolates() {
		g.careful = 1
	}
	return g
}
