package export

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/store-client/feed"
)

// Consumer is the exporter's name in the store.
const Consumer = "event-exporter"

// catchUpAge is how old a record is that is sent at the bounded rate: one of
// the backfill, or of a time when the receiver or the exporter was away.
const catchUpAge = 5 * time.Minute

// intake is the store's feed; what it delivers is put in the lanes first.
type intake struct {
	*Desk
	feed  consume.Feed[record.Record]
	limit *rate.Limiter
}

// open begins with the look-back if the exporter never ran on this store.
func (d *Desk) open(ctx context.Context) (consume.Feed[record.Record], error) {
	since := func() time.Time { return d.Clock.Now().Add(-d.LookBack) }
	f, err := feed.From(d.Source, Consumer, record.AllHealthEventInserts(), since, func(since time.Time) {
		d.Log.Info("first start on this store: sending what was stored since, and what is not finished", "since", since)
	})(ctx)
	if err != nil {
		return nil, err
	}
	in := &intake{Desk: d, feed: f}
	if d.Rate > 0 {
		in.limit = rate.NewLimiter(rate.Limit(d.Rate), max(1, int(d.Rate)))
	}
	return in, nil
}

// Next delivers the next record.
func (in *intake) Next(ctx context.Context) (record.Record, string, error) {
	if err := in.lanes.awaitRoom(ctx); err != nil {
		return record.Record{}, "", err
	}
	r, position, err := in.feed.Next(ctx)
	if err != nil {
		return record.Record{}, "", fmt.Errorf("reading the feed: %w", err)
	}
	if in.Aside != nil && in.Aside(r.ID) {
		return r, position, nil // the loop passes it over, and a lane does not hold it
	}
	// From here on the record is delivered, or the process is at its end.
	in.lanes.hold(r)
	if err := in.pace(ctx, r); err != nil {
		return record.Record{}, "", err
	}
	in.Metrics.received.WithLabelValues(string(r.Event.ProcessingStrategy)).Inc()
	in.lanes.push(r)
	return r, position, nil
}

// pace bounds the rate of old records, so that a receiver that was away, or is
// new, is not flooded.
func (in *intake) pace(ctx context.Context, r record.Record) error {
	now := in.Clock.Now()
	if in.limit == nil || now.Sub(r.CreatedAt) < catchUpAge {
		return nil
	}
	return sleep(ctx, in.Clock, in.limit.ReserveN(now, 1).DelayFrom(now))
}

func sleep(ctx context.Context, c clock.WithTicker, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-c.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Commit stores how far everything is delivered or buried.
func (in *intake) Commit(ctx context.Context, position string) error {
	return in.feed.Commit(ctx, position) //nolint:wrapcheck // the loop says what it was doing
}

// Close ends the feed.
func (in *intake) Close() error { return in.feed.Close() }
