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
	"github.com/nvidia/nvsentinel/store-client/store"
)

// reader is a Store of which only looking is left.
type reader struct{ s *Store }

func (r *reader) Get(ctx context.Context, id string) (record.Record, error) { return r.s.Get(ctx, id) }

func (r *reader) List(ctx context.Context, q store.Query) ([]record.Record, error) {
	return r.s.List(ctx, q)
}

func (r *reader) Ping(ctx context.Context) error { return r.s.Ping(ctx) }

func (r *reader) Close() error { return r.s.Close() }

// DeadLetters implements store.Reader.
func (r *reader) DeadLetters(ctx context.Context, source string) ([]store.DeadLetter, error) {
	return r.s.DeadLetters(ctx, source)
}

// Consumers implements store.Reader.
func (r *reader) Consumers(ctx context.Context) ([]store.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	lines, err := all[line](ctx, r.s.positions(), bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return nil, fmt.Errorf("listing consumers: %w", err)
	}
	var out []store.Consumer
	for _, l := range lines {
		c := store.Consumer{Name: l.Consumer, CommittedAt: l.At}
		if l.Mark != nil {
			c.Mark = *l.Mark
		}
		out = append(out, c)
	}
	return out, nil
}

// Lag implements store.Reader.
func (r *reader) Lag(ctx context.Context, consumer string, selector record.Selector, limit int) (store.Lag, error) {
	if limit < 1 {
		return store.Lag{}, fmt.Errorf("reading the lag of %s: the limit %d is less than 1", consumer, limit)
	}
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	lag, err := r.lag(ctx, consumer, selector, limit)
	if err != nil {
		return store.Lag{}, fmt.Errorf("reading the lag of %s: %w", consumer, err)
	}
	return lag, nil
}

// lag counts what the scan has left and what the stream bears behind the
// token. What both bear counts once.
func (r *reader) lag(ctx context.Context, consumer string, selector record.Selector, limit int) (store.Lag, error) {
	f := newFeed(r.s, consumer, selector)
	var lag store.Lag
	rest, token, err := r.left(ctx, f, &lag)
	if err != nil {
		return lag, err
	}
	waiting := map[string]time.Time{}
	if rest != nil {
		found, err := all[stored](ctx, r.s.events(), unread(selector, f.Kind, *rest),
			options.Find().SetProjection(bson.D{{Key: "storedat", Value: 1}, {Key: "changedat", Value: 1}}).SetSort(bson.D{{Key: "append", Value: 1}}).SetLimit(int64(limit)))
		if err != nil {
			return lag, fmt.Errorf("counting: %w", err)
		}
		for _, doc := range found {
			waiting[doc.ID] = f.time(doc)
		}
	}
	if token != "" {
		f.at.Token = token
		if err := f.count(ctx, waiting, limit); errors.Is(err, errEnded) {
			lag.Lost = string(streamEnded)
		} else if err != nil {
			return lag, fmt.Errorf("counting: %w", err)
		}
	}
	lag.Pending = min(len(waiting), limit)
	for _, at := range waiting {
		if lag.Oldest.IsZero() || at.Before(lag.Oldest) {
			lag.Oldest = at
		}
	}
	return lag, nil
}

// left returns what the consumer's scan has to read and from where it follows the stream.
func (r *reader) left(ctx context.Context, f *feed, lag *store.Lag) (*scan, string, error) {
	l, err := f.Lines.Line(ctx, f.Name)
	if err != nil {
		return nil, "", err
	}
	var rest scan
	if l.Stored {
		p, why, err := r.s.evaluatePosition(ctx, l, f.Kind)
		if err != nil || why == provider.NotLost {
			return p.Scan, p.Token, err
		}
		lag.Lost, rest = string(why), rescan(l.Mark)
	}
	rest.Until, err = r.s.head(ctx)
	return &rest, "", err
}

// countQuietPeriod is how long a count waits for more changes of the stream.
const countQuietPeriod = 200 * time.Millisecond

// count adds what the stream bears behind the feed's token.
func (f *feed) count(ctx context.Context, waiting map[string]time.Time, limit int) error {
	stream, err := f.s.events().Watch(ctx, Pipeline(f.selector), options.ChangeStream().SetResumeAfter(f.at.token()).SetMaxAwaitTime(countQuietPeriod))
	if refused(err) {
		return nil // the consumer will find out, and read again
	}
	if err != nil {
		return fmt.Errorf("opening the change stream: %w", err)
	}
	f.stream = stream
	defer f.hangUp()
	for len(waiting) < limit && stream.TryNext(ctx) {
		c, err := f.s.change(stream)
		if err != nil {
			return err
		}
		if _, known := waiting[c.Doc.ID]; !known {
			waiting[c.Doc.ID] = f.time(c.Doc)
		}
	}
	if stream.Err() == nil && stream.ID() == 0 {
		return errEnded
	}
	return stream.Err()
}

// change decodes the stream's present event.
func (s *Store) change(stream *mongo.ChangeStream) (change, error) {
	var c change
	if err := stream.Decode(&c); err != nil {
		return c, fmt.Errorf("reading a change: %w", err)
	}
	return c, nil
}
