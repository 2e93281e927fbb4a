package mongodb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/store"
)

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
		return n, fmt.Errorf("dropping dead letters of %s: %w", bound.Source, err)
	}
	return n, nil
}

// beyond are the ids of the dead letters beyond a bound. Those of an earlier version do not
// say how large they are, and count as empty.
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
