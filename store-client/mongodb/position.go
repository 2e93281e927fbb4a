package mongodb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
)

// position is how far a consumer has come: it has everything before the change
// stream's token, except what a scan still has to read.
type position struct {
	provider.Header
	// Count counts what was delivered since the reading began: nobody can compare
	// tokens.
	Count int64 `json:"n"`
	// Token is the change stream's, in hexadecimal.
	Token string `json:"t"`
	// Head is the highest number of the append order that was seen.
	Head int64 `json:"h"`
	// Scan is what a scan still has to read; nil when it has ended.
	Scan *scan `json:"r,omitempty"`
}

// scan reads by append order what was stored before the change stream was opened:
// a rescan, or everything.
type scan struct {
	provider.Rescan
	After int64 `json:"a"`
	// Opened is when the change stream was opened, in microseconds since 1970.
	Opened int64 `json:"o,omitempty"`
	// Again is true if it is a rescan.
	Again bool `json:"g,omitempty"`
}

// rescan is the scan after a lost position; its end is not known yet.
func rescan(mark *time.Time) scan { return scan{Rescan: provider.RescanFrom(mark, 0), Again: true} }

// Valid implements provider.Position.
func (p position) Valid() bool { return p.Token != "" }

// Rescanning implements provider.Position.
func (p position) Rescanning() bool { return p.Scan != nil && p.Scan.Again }

// Beyond implements provider.Position. A token may have moved on although nothing was
// delivered: then the one that comes later is taken.
func (p position) Beyond(q position) bool {
	return p.Count > q.Count || p.Count == q.Count && p.Token != q.Token
}

// token is the resume token as the server gave it.
func (p position) token() bson.D { return bson.D{{Key: "_data", Value: p.Token}} }

// tokenOf reads a server's token.
func tokenOf(raw bson.Raw) (string, error) {
	data, ok := raw.Lookup("_data").StringValueOK()
	if !ok || data == "" {
		return "", fmt.Errorf("the server returned no resume token: %s", raw)
	}
	return data, nil
}

// Losses that only change streams know.
const (
	// tokenLost: the server refuses the token: its history is gone.
	tokenLost provider.Loss = "token-lost"
	// streamEnded: the collection or the database was dropped, renamed or restored; what is
	// there now may have come without a change in the stream.
	streamEnded provider.Loss = "stream-ended"
)

// evaluatePosition reads a stored line and returns why it cannot be resumed, if it cannot.
func (s *Store) evaluatePosition(ctx context.Context, l provider.Line, k provider.Kind) (position, provider.Loss, error) {
	head, err := s.head(ctx)
	p, why := provider.EvaluatePosition(l, *s.home.Load(), k, func(p position) bool { return p.Head > head })
	return p, why, err
}

// head is the last number of the append order that was reserved.
func (s *Store) head(ctx context.Context) (int64, error) {
	var counter struct{ N int64 }
	err := s.db.Collection(state).FindOne(ctx, byID("append")).Decode(&counter)
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		return 0, fmt.Errorf("reading the head: %w", err)
	}
	return counter.N, nil
}

// line is a consumer's line as it is stored.
type line struct {
	Consumer string     `json:"_id"`
	Position string     `json:"position"`
	Mark     *time.Time `json:"mark"`
	At       time.Time  `json:"updatedat"`
}

// lines implements provider.Lines.
type lines struct{ *Store }

func (s *Store) positions() *mongo.Collection { return s.db.Collection(Positions) }

// Line reads a consumer's line.
func (ln lines) Line(ctx context.Context, consumer string) (provider.Line, error) {
	var l line
	err := ln.positions().FindOne(ctx, byID(consumer)).Decode(&l)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return provider.Line{}, nil
	}
	if err != nil {
		return provider.Line{}, fmt.Errorf("reading the position: %w", err)
	}
	return provider.Line{Stored: true, Text: l.Position, Mark: l.Mark}, nil
}

// Swap writes a consumer's line if the old one is there.
func (ln lines) Swap(ctx context.Context, consumer string, old, with provider.Line) (bool, error) {
	if err := ln.checkVersion(ctx); err != nil {
		return false, err
	}
	set := bson.D{{Key: "position", Value: with.Text}, {Key: "mark", Value: with.Mark}, {Key: "updatedat", Value: ln.Clock.Now()}}
	if old.Stored {
		where := append(byID(consumer), bson.E{Key: "position", Value: old.Text})
		res, err := ln.positions().UpdateOne(ctx, where, bson.D{{Key: "$set", Value: set}})
		return err == nil && res.MatchedCount == 1, err
	}
	res, err := ln.positions().UpdateOne(ctx, byID(consumer), bson.D{{Key: "$setOnInsert", Value: set}}, options.UpdateOne().SetUpsert(true))
	if mongo.IsDuplicateKeyError(err) {
		return false, nil
	}
	return err == nil && res.UpsertedCount == 1, err
}

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
	p, why, err := f.s.evaluatePosition(ctx, l, f.Kind)
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
