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

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, id string) (record.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	var doc stored
	err := s.events().FindOne(ctx, byID(id), options.FindOne().SetProjection(projection())).Decode(&doc)
	if errors.Is(err, mongo.ErrNoDocuments) {
		err = store.ErrNotFound
	}
	var r record.Record
	if err == nil {
		r, err = doc.decode()
	}
	if err != nil {
		return record.Record{}, fmt.Errorf("reading record %q: %w", id, err)
	}
	return r, nil
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, q store.Query) ([]record.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	where := filter(q.Selector, "")
	if past := map[store.Order]string{store.ByAppend: "$gt", store.ByAppendDescending: "$lt"}[q.Order]; past != "" && q.After > 0 {
		where = append(where, bson.E{Key: "append", Value: bson.D{{Key: past, Value: q.After}}})
	}
	if len(q.Except) > 0 {
		where = append(where, bson.E{Key: "_id", Value: bson.D{{Key: "$nin", Value: q.Except}}})
	}
	order := bson.D{{Key: "append", Value: 1}}
	switch q.Order {
	case store.ByAppend:
	case store.BySeqDescending:
		order = bson.D{{Key: "seq", Value: -1}, {Key: "append", Value: -1}}
	case store.ByAppendDescending:
		order = bson.D{{Key: "append", Value: -1}}
	}
	return s.undecodable.List(ctx, q, func(ctx context.Context, limit int, page *provider.Page) error {
		cursor, err := s.events().Find(ctx, where, options.Find().SetProjection(projection()).SetSort(order).SetLimit(int64(limit)))
		if err != nil {
			return err
		}
		return errors.Join(take(ctx, cursor, page), cursor.Close(ctx))
	})
}

// take reads documents of a cursor until the page is full.
func take(ctx context.Context, cursor *mongo.Cursor, page *provider.Page) error {
	for !page.Full() && cursor.Next(ctx) {
		var f stored
		if err := cursor.Decode(&f); err != nil {
			return err
		}
		page.Add(f.take())
	}
	return cursor.Err()
}

// Dead implements store.Store. The same letter again replaces the first.
func (s *Store) Dead(ctx context.Context, deadLetter store.DeadLetter) error {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	id := bson.D{{Key: "source", Value: provider.Text(deadLetter.Source)}, {Key: "id", Value: provider.Text(deadLetter.ID)}}
	err := s.checkVersion(ctx)
	if err != nil {
		return fmt.Errorf("storing dead letter %q of %s: %w", deadLetter.ID, deadLetter.Source, err)
	}
	_, err = s.db.Collection(DeadLetters).UpdateOne(ctx, bson.D{{Key: "_id", Value: id}}, bson.D{{Key: "$set", Value: bson.D{
		{Key: "reason", Value: provider.Text(deadLetter.Reason)}, {Key: "body", Value: deadLetter.Body}, {Key: "at", Value: deadLetter.At},
		{Key: "bytes", Value: int64(len(deadLetter.Body))},
	}}}, options.UpdateOne().SetUpsert(true))
	if err != nil {
		return fmt.Errorf("storing dead letter %q of %s: %w", deadLetter.ID, deadLetter.Source, err)
	}
	return nil
}

// letter is a stored dead letter.
type letter struct {
	ID     struct{ ID string } `bson:"_id"`
	Reason string
	Body   []byte
	At     time.Time
}

// DeadLetters implements store.Store.
func (s *Store) DeadLetters(ctx context.Context, source string) (out []store.DeadLetter, err error) {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	cursor, err := s.db.Collection(DeadLetters).Find(ctx, bson.D{{Key: "_id.source", Value: source}},
		options.Find().SetSort(bson.D{{Key: "at", Value: -1}, {Key: "_id", Value: 1}}).SetLimit(store.MaxDeadLetters))
	if err == nil {
		var found []letter
		found, err = enough(ctx, cursor)
		for _, l := range found {
			out = append(out, store.DeadLetter{ID: l.ID.ID, Source: source, Reason: l.Reason, Body: l.Body, At: l.At})
		}
		err = errors.Join(err, cursor.Close(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("reading the dead letters of %s: %w", source, err)
	}
	return out, nil
}

// enough reads letters of a cursor until their bodies have PageBytes.
func enough(ctx context.Context, cursor *mongo.Cursor) (out []letter, err error) {
	for size := 0; size < store.PageBytes && cursor.Next(ctx); {
		var l letter
		if err := cursor.Decode(&l); err != nil {
			return nil, err
		}
		out, size = append(out, l), size+len(l.Body)
	}
	return out, cursor.Err()
}

// expireBatch bounds the records that one command of Expire deletes.
const expireBatch = 1000

// Expire implements store.Store. The exact time decides: the date of the index
// is cut to milliseconds.
func (s *Store) Expire(ctx context.Context, now time.Time) (int, error) {
	total := 0
	for {
		n, more, err := s.expire(ctx, now)
		total += n
		if err != nil {
			return total, fmt.Errorf("expiring records: %w", err)
		}
		s.Metrics.Expired.Add(float64(n))
		if !more {
			return total, nil
		}
	}
}

// due selects what may have expired: what every consumer has passed, and what is
// overdue.
func due(now, passed time.Time) bson.D {
	return bson.D{
		{Key: "expireAt", Value: bson.D{{Key: "$lte", Value: now}, {Key: "$ne", Value: nil}}},
		{Key: "$or", Value: bson.A{
			bson.D{{Key: "storedat", Value: bson.D{{Key: "$lte", Value: passed}}}},
			bson.D{{Key: "expireAt", Value: bson.D{{Key: "$lt", Value: now.Add(-store.ExpireGrace)}}}},
		}},
	}
}

// passed is up to when stored records have been committed by every consumer.
func (s *Store) passed(ctx context.Context) (time.Time, error) {
	lines, err := all[line](ctx, s.positions(), bson.D{})
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the positions of consumers: %w", err)
	}
	oldest := provider.Never
	for _, l := range lines {
		if l.Mark == nil {
			return time.Unix(0, 0), nil
		}
		if l.Mark.Before(oldest) {
			oldest = *l.Mark
		}
	}
	return oldest, nil
}

func (s *Store) expire(ctx context.Context, now time.Time) (n int, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	if err := s.checkVersion(ctx); err != nil {
		return 0, false, err
	}
	passed, err := s.passed(ctx)
	if err != nil {
		return 0, false, err
	}
	where := due(now, passed)
	found, err := all[stored](ctx, s.events(), where, options.Find().SetProjection(projection()).SetSort(bson.D{{Key: "expireAt", Value: 1}}).SetLimit(expireBatch))
	if err != nil {
		return 0, false, err
	}
	ids := bson.A{}
	for _, f := range found {
		// Of a broken document only the date is known.
		if r, err := f.decode(); err != nil || r.ExpireAt != nil && r.ExpireAt.Before(now) {
			ids = append(ids, f.key)
		}
	}
	// A record that got a later expiry meanwhile does not match any more.
	res, err := s.events().DeleteMany(ctx, append(where, bson.E{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}))
	if err != nil {
		return 0, false, err
	}
	return int(res.DeletedCount), len(found) == expireBatch && len(ids) > 0, nil
}

// trimBatch bounds the dead letters that one command deletes.
const trimBatch = 1000

// bySource is the index by which dead letters are read and trimmed.
func bySource() mongo.IndexModel {
	return mongo.IndexModel{Keys: bson.D{{Key: "_id.source", Value: 1}, {Key: "at", Value: -1}}, Options: options.Index().SetName("source")}
}

// heading is what of a dead letter decides whether it is kept.
type heading struct {
	ID    bson.Raw `bson:"_id"`
	At    time.Time
	Bytes int64
}

// TrimDeadLetters implements store.Store.
func (s *Store) TrimDeadLetters(ctx context.Context, bound store.DeadLetterBound, now time.Time) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	beyond, err := s.beyond(ctx, bound, now)
	for ; err == nil && len(beyond) > 0; beyond = beyond[min(len(beyond), trimBatch):] {
		var res *mongo.DeleteResult
		ids := beyond[:min(len(beyond), trimBatch)]
		if res, err = s.db.Collection(DeadLetters).DeleteMany(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}); err == nil {
			n += int(res.DeletedCount)
		}
	}
	s.Metrics.Trimmed.Add(float64(n))
	if err != nil {
		return n, fmt.Errorf("deleting dead letters of %s: %w", bound.Source, err)
	}
	return n, nil
}

// beyond are the ids of the dead letters beyond a bound. Those of an earlier version have
// no size, and count as empty.
func (s *Store) beyond(ctx context.Context, bound store.DeadLetterBound, now time.Time) (ids []bson.Raw, err error) {
	of := bson.D{{Key: "$gte", Value: bound.Source}, {Key: "$lte", Value: bound.Source}}
	if bound.Prefix {
		of[1].Value = bound.Source + "\U0010FFFF"
	}
	cursor, err := s.db.Collection(DeadLetters).Find(ctx, bson.D{{Key: "_id.source", Value: of}}, options.Find().
		SetProjection(bson.D{{Key: "at", Value: 1}, {Key: "bytes", Value: 1}}).SetSort(bson.D{{Key: "_id.source", Value: 1}, {Key: "at", Value: -1}, {Key: "_id", Value: 1}}))
	if err != nil {
		return nil, err
	}
	var source string
	var count int
	var bytes int64
	for cursor.Next(ctx) {
		var l heading
		if err := cursor.Decode(&l); err != nil {
			return nil, errors.Join(err, cursor.Close(ctx))
		}
		if name := l.ID.Lookup("source").StringValue(); name != source {
			source, count, bytes = name, 0, 0
		}
		count, bytes = count+1, bytes+l.Bytes
		if bound.Count > 0 && count > bound.Count || bound.Bytes > 0 && bytes > bound.Bytes || bound.Age > 0 && l.At.Before(now.Add(-bound.Age)) {
			ids = append(ids, l.ID)
		}
	}
	return ids, errors.Join(cursor.Err(), cursor.Close(ctx))
}
