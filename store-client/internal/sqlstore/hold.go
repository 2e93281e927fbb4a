package sqlstore

import (
	"context"
	"time"
)

// tellHeld is how long one transaction may keep the server's horizon back before
// it is named.
const tellHeld = time.Minute

// hold is since when the oldest transaction under way has kept the server's
// horizon at tx. Feeds deliver beyond it and remember which transactions they
// have seen; the server's own cleaning stands still, though.
type hold struct {
	tx    int64
	since time.Time
	told  bool
}

// watch notes how long the horizon has stood, and names once who holds it.
func (f *feed) watch(ctx context.Context, head Head) {
	now := f.Clock.Now()
	switch {
	case head.Shot == nil:
		f.held = hold{}
	case f.held.since.IsZero() || f.held.tx != head.Tx:
		f.held = hold{tx: head.Tx, since: now}
	}
	var stood time.Duration
	if !f.held.since.IsZero() {
		stood = max(0, now.Sub(f.held.since))
	}
	f.Metrics.Held.WithLabelValues(f.Name).Set(stood.Seconds())
	if stood < tellHeld || f.held.told || f.s.Dialect.Holder == nil {
		return
	}
	f.held.told = true
	who, err := f.s.Dialect.Holder(ctx, f.s.db)
	if err != nil {
		f.Log.Warn("a transaction has been under way for long; who began it cannot be read", "consumer", f.Name, "error", err)
		return
	}
	f.Log.Warn("a transaction has been under way for long: feeds go on, but the server can clean nothing that is newer; end it", "consumer", f.Name, "oldest", who)
}
