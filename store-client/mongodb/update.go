package mongodb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Update implements store.Store: one document is a compare-and-set by itself,
// several are a transaction.
func (s *Store) Update(ctx context.Context, writer record.Writer, changes []store.Change) ([]record.Record, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	bounded, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	after, err := s.update(bounded, writer, changes)
	switch {
	case err == nil:
		return after, nil
	case errors.Is(err, store.ErrConflict):
		s.Metrics.Conflicts.WithLabelValues(string(writer)).Inc()
	case errors.Is(err, record.ErrNotOwner), errors.Is(err, record.ErrIllegalTransition), errors.Is(err, store.ErrNewer):
		s.Metrics.Refusals.WithLabelValues(string(writer)).Inc()
	}
	return nil, fmt.Errorf("updating %d records: %w", len(changes), err)
}

func (s *Store) update(ctx context.Context, writer record.Writer, changes []store.Change) (after []record.Record, err error) {
	now, err := s.hello(ctx)
	if err == nil {
		err = s.checkVersion(ctx)
	}
	if err != nil {
		return nil, err
	}
	if len(changes) == 1 {
		return s.replace(ctx, writer, changes, now.LocalTime)
	}
	session, err := s.client.StartSession(options.Session().SetDefaultTransactionOptions(
		options.Transaction().SetReadConcern(readconcern.Snapshot())))
	if err != nil {
		return nil, fmt.Errorf("beginning a transaction: %w", err)
	}
	defer session.EndSession(ctx)
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		after, err = s.replace(ctx, writer, changes, now.LocalTime)
		return nil, err
	})
	return after, err
}

// replace reads the records, decides about the batch and writes it, each
// document only at the revision that was read.
func (s *Store) replace(ctx context.Context, writer record.Writer, changes []store.Change, now time.Time) ([]record.Record, error) {
	before, documents, err := s.read(ctx, changes)
	if err != nil {
		return nil, err
	}
	after, err := provider.Apply(writer, before, changes)
	if err != nil {
		return nil, err
	}
	models := make([]mongo.WriteModel, len(after))
	for i, r := range after {
		doc, err := changedDocument(documents[r.ID], before[r.ID], r, now)
		if err != nil {
			return nil, fmt.Errorf("record %q: %w", r.ID, err)
		}
		at := append(byID(r.ID), bson.E{Key: "revision", Value: r.Revision - 1})
		models[i] = mongo.NewReplaceOneModel().SetFilter(at).SetReplacement(doc)
	}
	// In one order everywhere, so that crossing batches meet at their first
	// common record.
	slices.SortFunc(models, byFilter)
	res, err := s.events().BulkWrite(ctx, models)
	if err != nil {
		return nil, fmt.Errorf("writing: %w", err)
	}
	if res.MatchedCount != int64(len(models)) {
		return nil, fmt.Errorf("%d of %d records: %w", int64(len(models))-res.MatchedCount, len(models), store.ErrConflict)
	}
	return after, nil
}

// changedDocument is what takes the place of a stored document.
func changedDocument(of stored, before, after record.Record, now time.Time) (any, error) {
	was, err := encode(before, of.StoredAt, of.ChangedAt)
	if err != nil {
		return nil, err
	}
	is, err := encode(after, of.StoredAt, now)
	if err != nil {
		return nil, err
	}
	return replacement(of.doc, was, is)
}

func byFilter(a, b mongo.WriteModel) int {
	id := func(m mongo.WriteModel) string {
		return m.(*mongo.ReplaceOneModel).Filter.(bson.D)[0].Value.(string) //nolint:forcetypeassert // made above
	}
	if id(a) < id(b) {
		return -1
	}
	return 1
}

// read gets the records that changes are about, each with its whole document.
func (s *Store) read(ctx context.Context, changes []store.Change) (map[string]record.Record, map[string]stored, error) {
	var ids []string
	for _, c := range changes {
		ids = append(ids, c.ID)
	}
	found, err := all[stored](ctx, s.events(), bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}})
	if err != nil {
		return nil, nil, fmt.Errorf("reading: %w", err)
	}
	records, documents := map[string]record.Record{}, map[string]stored{}
	for _, f := range found {
		r, err := f.decode()
		if err != nil {
			return nil, nil, fmt.Errorf("record %q: %w", f.ID, err)
		}
		records[f.ID], documents[f.ID] = r, f
	}
	return records, documents, nil
}
