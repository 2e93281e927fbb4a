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

// Append implements store.Store. Each record is inserted unless its id is
// taken, in order; a failure may leave the first of them stored, which the
// next try finds as duplicates.
func (s *Store) Append(ctx context.Context, records []record.Record) ([]store.AppendResult, error) {
	return provider.Append(ctx, s.Metrics, records, s.insert)
}

// AppendTo implements store.Identified. The server is asked for just before; one
// that has lost its database is given a new name by the append.
func (s *Store) AppendTo(ctx context.Context, server string, records []record.Record) ([]store.AppendResult, string, error) {
	now, err := s.Server(ctx)
	if err == nil && now == "" {
		if err = s.prepare(ctx); err == nil {
			now = *s.home.Load()
		}
	}
	if err == nil {
		err = provider.Moved(server, now)
	}
	if err != nil {
		return nil, now, fmt.Errorf("appending %d records: %w", len(records), err)
	}
	results, err := s.Append(ctx, records)
	return results, now, err
}

// insert stores records of different ids and returns what is stored under them now.
func (s *Store) insert(ctx context.Context, records []record.Record) (map[string]provider.Content, error) {
	if len(records) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	if err := s.checkVersion(ctx); err != nil {
		return nil, err
	}
	last, at, err := s.reserve(ctx, len(records))
	if err != nil {
		return nil, err
	}
	docs := make([]document, len(records))
	for i, r := range records {
		r.Append, r.Revision = last-int64(len(records)-1-i), 0
		if docs[i], err = encode(r, at, at); err != nil {
			return nil, err
		}
	}
	inserted, err := s.insertNew(ctx, docs)
	if err != nil {
		return nil, fmt.Errorf("inserting: %w", err)
	}
	contents := map[string]provider.Content{}
	var taken []string
	for _, r := range records {
		if inserted[r.ID] {
			contents[r.ID] = provider.Content{Digest: record.Content(r), Fresh: true}
		} else {
			taken = append(taken, r.ID)
		}
	}
	return contents, s.compare(ctx, taken, contents)
}

// insertNew inserts the documents in order, but for those whose id is taken, and returns
// which it inserted.
func (s *Store) insertNew(ctx context.Context, docs []document) (map[string]bool, error) {
	inserted := map[string]bool{}
	for len(docs) > 0 {
		_, err := s.events().InsertMany(ctx, docs)
		done := len(docs)
		if err != nil {
			var taken bool
			if done, taken = duplicate(err); !taken {
				return nil, err
			}
		}
		for _, d := range docs[:done] {
			inserted[d.ID] = true
		}
		if docs, err = s.absent(ctx, docs[done:]); err != nil {
			return nil, err
		}
	}
	return inserted, nil
}

// duplicate returns which document of an ordered insertion had a taken id: those before it
// are stored.
func duplicate(err error) (int, bool) {
	bulk, ok := errors.AsType[mongo.BulkWriteException](err)
	if !ok || len(bulk.WriteErrors) != 1 || !mongo.IsDuplicateKeyError(bulk) {
		return 0, false
	}
	return bulk.WriteErrors[0].Index, true
}

// absent leaves out the documents whose ids are taken.
func (s *Store) absent(ctx context.Context, docs []document) ([]document, error) {
	if len(docs) == 0 {
		return nil, nil
	}
	var ids bson.A
	for _, d := range docs {
		ids = append(ids, d.ID)
	}
	found, err := all[stored](ctx, s.events(), bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}},
		options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return nil, fmt.Errorf("finding existing IDs: %w", err)
	}
	taken := map[string]bool{}
	for _, f := range found {
		taken[f.ID] = true
	}
	return slices.DeleteFunc(slices.Clone(docs), func(d document) bool { return taken[d.ID] }), nil
}

// compare reads the digests of ids that were taken.
func (s *Store) compare(ctx context.Context, taken []string, contents map[string]provider.Content) error {
	for part := range slices.Chunk(taken, 1000) {
		found, err := all[struct {
			ID     string        `json:"_id"`
			Digest bson.RawValue `json:"digest"`
			Event  bson.RawValue `json:"healthevent"`
		}](ctx, s.events(), bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: part}}}},
			options.Find().SetProjection(bson.D{{Key: "digest", Value: 1}, {Key: "healthevent.nodename", Value: 1}}))
		if err != nil {
			return fmt.Errorf("comparing: %w", err)
		}
		if len(found) != len(part) {
			return fmt.Errorf("comparing: %d of %d records expired while they were appended again", len(part)-len(found), len(part))
		}
		for _, f := range found {
			digest, _ := f.Digest.StringValueOK() // anything else is other content
			contents[f.ID] = provider.Content{Digest: digest, Node: nodeOf(f.Event)}
		}
	}
	return nil
}

// nodeOf is the node of an event, empty where it cannot be read.
func nodeOf(event bson.RawValue) string {
	doc, ok := event.DocumentOK()
	if !ok {
		return ""
	}
	node, _ := doc.Lookup("nodename").StringValueOK()
	return node
}

// reserve takes n numbers of the append order and returns the last of them,
// with the server's time.
func (s *Store) reserve(ctx context.Context, n int) (int64, time.Time, error) {
	last, at, err := s.places(ctx, n)
	if !errors.Is(err, mongo.ErrNoDocuments) {
		return last, at, err
	}
	// The database was dropped while this process runs.
	if err := s.prepare(ctx); err != nil {
		return 0, time.Time{}, fmt.Errorf("preparing the database again: %w", err)
	}
	return s.places(ctx, n)
}

func (s *Store) places(ctx context.Context, n int) (int64, time.Time, error) {
	var counter struct {
		N  int64
		At time.Time
	}
	err := s.db.Collection(state).FindOneAndUpdate(ctx, byID("append"),
		bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: int64(n)}}}, {Key: "$currentDate", Value: bson.D{{Key: "at", Value: true}}}},
		options.FindOneAndUpdate().SetReturnDocument(options.After)).Decode(&counter)
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("reserving log positions: %w", err)
	}
	return counter.N, counter.At, nil
}

func byID(id string) bson.D { return bson.D{{Key: "_id", Value: id}} }

// all reads every document of a query.
func all[T any](ctx context.Context, c *mongo.Collection, filter bson.D, o ...options.Lister[options.FindOptions]) ([]T, error) {
	cursor, err := c.Find(ctx, filter, o...)
	if err != nil {
		return nil, err
	}
	var out []T
	return out, cursor.All(ctx, &out)
}

// Update implements store.Store: one document is a compare-and-set by itself,
// several are a transaction.
func (s *Store) Update(ctx context.Context, writer record.Writer, changes []store.Change) ([]record.Record, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	bounded, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	after, err := s.update(bounded, writer, changes)
	if err != nil {
		return nil, s.Metrics.NotUpdated(writer, len(changes), err)
	}
	return after, nil
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
