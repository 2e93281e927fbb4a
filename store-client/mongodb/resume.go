package mongodb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/nvidia/nvsentinel/store-client/internal/provider"
)

// resume sets the feed at the stored position: at the beginning for a consumer
// without one, at a scan when the stored one says nothing here.
func (f *feed) resume(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	l, found, err := f.s.lineOf(ctx, f.consumer)
	if err != nil {
		return err
	}
	if !found {
		return f.begin(ctx, reading{}, 1)
	}
	p, why, err := f.s.standing(ctx, l, f.kind)
	if err != nil {
		return err
	}
	if why != notLost {
		return f.again(ctx, l, why)
	}
	f.at, f.twice = p, map[string]bool{}
	return f.open(ctx)
}

// open opens the stream behind what was read. A token that the server refuses
// begins a scan.
func (f *feed) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	if f.ended {
		return f.reopen(ctx)
	}
	stream, err := f.watch(ctx, options.ChangeStream().SetResumeAfter(f.at.token()))
	if err == nil {
		f.stream = stream
		return nil
	}
	if !refused(err) {
		return fmt.Errorf("opening the change stream: %w", err)
	}
	if lost := f.lost(ctx, tokenLost); lost != nil {
		return errors.Join(err, lost)
	}
	return nil
}

// reopen goes on after the server ended the stream. The token is of no use: the
// server would end the stream behind it again.
func (f *feed) reopen(ctx context.Context) error {
	if err := f.s.goHome(ctx); err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		return fmt.Errorf("reading the name of the database: %w", err)
	}
	if err := f.lost(ctx, streamEnded); err != nil {
		return err
	}
	f.ended = false
	return nil
}

// lost begins the reading that a lost position asks for.
func (f *feed) lost(ctx context.Context, why loss) error {
	l, found, err := f.s.lineOf(ctx, f.consumer)
	if err != nil {
		return err
	}
	if !found {
		// Nothing was committed: everything is read again.
		return f.begin(ctx, reading{}, f.at.Scan+1)
	}
	return f.again(ctx, l, why)
}

// watch opens a stream that outlives ctx.
func (f *feed) watch(ctx context.Context, o *options.ChangeStreamOptionsBuilder) (*mongo.ChangeStream, error) {
	return f.s.events().Watch(ctx, Pipeline(f.selector), o.SetMaxAwaitTime(await))
}

// begin opens a stream at the present and a scan of what was stored before:
// what is stored in between comes by at least one of them.
func (f *feed) begin(ctx context.Context, r reading, scan int64) error {
	stream, err := f.watch(ctx, options.ChangeStream())
	if err != nil {
		return fmt.Errorf("opening the change stream: %w", err)
	}
	f.hangUp()
	f.stream, f.buffer, f.twice = stream, nil, map[string]bool{}
	token, err := tokenOf(stream.ResumeToken())
	if err != nil {
		return err
	}
	if r.Until, err = f.s.head(ctx); err != nil {
		return err
	}
	f.at = position{Version: positionVersion, Home: *f.s.home.Load(), Kind: f.kind, Scan: scan, Token: token, Head: r.Until, Reading: &r}
	return nil
}

// again begins a scan after a lost position and stores that it began.
func (f *feed) again(ctx context.Context, l line, why loss) error {
	r := reading{Again: true}
	if l.Mark != nil {
		since := l.Mark.Add(-rescanMargin).UnixMicro()
		r.Since = &since
	}
	if err := f.begin(ctx, r, max(l.Scan, f.at.Scan)+1); err != nil {
		return err
	}
	if err := f.replace(ctx, l, f.at); err != nil {
		return err
	}
	reason := string(why)
	if l.Mark == nil {
		reason += "-mark-lost"
	}
	f.s.Metrics.Rescans.WithLabelValues(f.consumer, reason).Inc()
	f.s.Log.Warn("reading again after a lost feed position", "consumer", f.consumer, "reason", reason, "mark", markText(l.Mark))
	return nil
}

func markText(mark *time.Time) string {
	if mark == nil {
		return "lost"
	}
	return mark.Format(time.RFC3339)
}
