package mongodb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
)

// Begin implements store.Store.
func (s *Store) Begin(ctx context.Context, consumer string, selector record.Selector, since time.Time) (bool, error) {
	f := newFeed(s, consumer, selector)
	defer f.hangUp()
	return f.Begin(ctx, since, func(ctx context.Context) (position, error) {
		err := f.begin(ctx, rescan(&since), 0)
		return f.at, err
	})
}

// resume sets the feed where the consumer goes on: at its stored position, at the
// beginning when it has none, or with a rescan when the stored one is lost.
func (f *feed) resume(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	l, err := f.Lines.Line(ctx, f.Name)
	if err != nil {
		return err
	}
	if !l.Stored {
		return f.begin(ctx, scan{}, 0)
	}
	p, why, err := f.s.judge(ctx, l, f.Kind)
	if err != nil {
		return err
	}
	if why != provider.NotLost {
		return f.again(ctx, l, why)
	}
	f.at, f.scanned = p, map[string]version{}
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
func (f *feed) lost(ctx context.Context, why provider.Loss) error {
	l, err := f.Lines.Line(ctx, f.Name)
	if err != nil {
		return err
	}
	if !l.Stored {
		// Nothing was committed: everything is read again.
		return f.begin(ctx, scan{}, f.at.Reading)
	}
	return f.again(ctx, l, why)
}

// watch opens a stream that outlives ctx.
func (f *feed) watch(ctx context.Context, o *options.ChangeStreamOptionsBuilder) (*mongo.ChangeStream, error) {
	return f.s.events().Watch(ctx, Pipeline(f.selector), o.SetMaxAwaitTime(await))
}

// begin opens a stream at the present and a scan of what was stored before:
// what is stored in between comes by at least one of them. before is the number of
// the last reading that is known.
func (f *feed) begin(ctx context.Context, r scan, before int64) error {
	r.Opened = f.s.Clock.Now().UnixMicro()
	stream, err := f.watch(ctx, options.ChangeStream())
	if err != nil {
		return fmt.Errorf("opening the change stream: %w", err)
	}
	f.hangUp()
	f.stream, f.buffer, f.scanned = stream, nil, map[string]version{}
	token, err := tokenOf(stream.ResumeToken())
	if err != nil {
		return err
	}
	if r.Until, err = f.s.head(ctx); err != nil {
		return err
	}
	f.at = position{Header: provider.BeginHeader(*f.s.home.Load(), f.Kind, before), Token: token, Head: r.Until, Scan: &r}
	return nil
}

// again begins a rescan after a lost position and stores that it began.
func (f *feed) again(ctx context.Context, l provider.Line, why provider.Loss) error {
	before := f.at.Reading
	if p, err := provider.ParsePosition[position](l.Text); err == nil {
		before = max(before, p.Reading)
	}
	if err := f.begin(ctx, rescan(l.Mark), before); err != nil {
		return err
	}
	return f.Rescan(ctx, l, f.at, why)
}
