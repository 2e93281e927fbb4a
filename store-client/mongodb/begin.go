package mongodb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
)

// Begin implements store.Store: the position of a consumer that has none is
// that of a scan from since.
func (s *Store) Begin(ctx context.Context, consumer string, selector record.Selector, since time.Time) (bool, error) {
	if consumer == "" {
		return false, errors.New("beginning a feed: the consumer has no name")
	}
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	first, err := s.beginAt(ctx, consumer, selector, since)
	if err != nil {
		return false, fmt.Errorf("beginning the feed of %s: %w", consumer, err)
	}
	return first, nil
}

func (s *Store) beginAt(ctx context.Context, consumer string, selector record.Selector, since time.Time) (bool, error) {
	if _, found, err := s.lineOf(ctx, consumer); err != nil || found {
		return false, err
	}
	f := &feed{s: s, consumer: consumer, selector: selector, kind: kindOf(selector)}
	defer f.hangUp()
	from := since.Add(-rescanMargin).UnixMicro()
	if err := f.begin(ctx, reading{Again: true, Since: &from}, 1); err != nil {
		return false, err
	}
	// A line that another process wrote meanwhile stands.
	res, err := s.lines().UpdateOne(ctx, byID(consumer), bson.D{{Key: "$setOnInsert", Value: bson.D{
		{Key: "position", Value: f.at.String()}, {Key: "scan", Value: f.at.Scan}, {Key: "count", Value: f.at.Count},
		{Key: "mark", Value: since}, {Key: "updatedat", Value: s.Clock.Now()},
	}}}, options.UpdateOne().SetUpsert(true))
	if err != nil {
		return false, fmt.Errorf("storing the position: %w", err)
	}
	return res.UpsertedCount == 1, nil
}
