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

	"github.com/nvidia/nvsentinel/data-models/maintenance"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Collections of what cloud providers announce.
const (
	// Announced holds the maintenances.
	Announced = "MaintenanceEvents"
	// Providers holds, per provider, how far it has been read.
	Providers = "MaintenanceProviders"
)

var _ store.Maintenances = (*Store)(nil)

// namespaceExists is the server's code for a collection that is there already.
const namespaceExists = 48

// OpenMaintenances connects to the database at dsn for what providers announce, with
// an account that needs no right to another collection. It makes the collections:
// they cannot be made in the midst of a transaction.
func OpenMaintenances(ctx context.Context, dsn string, cfg Config) (store.Maintenances, error) {
	s, err := connect(ctx, dsn, cfg)
	if err != nil {
		return nil, err
	}
	if err := s.prepareMaintenances(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the database: %w", err), s.Close())
	}
	return s, nil
}

func (s *Store) prepareMaintenances(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	err := s.db.Collection(Announced).FindOne(ctx, bson.D{{Key: "exact", Value: bson.D{{Key: "$exists", Value: false}}}}).Err()
	if err == nil {
		return provider.Earlier(s.db.Name(), "the collection "+Announced)
	}
	if !errors.Is(err, mongo.ErrNoDocuments) {
		return fmt.Errorf("checking for maintenances: %w", err)
	}
	for _, name := range []string{Announced, Providers} {
		err := s.db.CreateCollection(ctx, name)
		if is, ok := errors.AsType[mongo.CommandError](err); ok && is.Code == namespaceExists {
			err = nil
		}
		if err != nil {
			return fmt.Errorf("creating the collection %s: %w", name, err)
		}
	}
	if _, err := s.db.Collection(Announced).Indexes().CreateMany(ctx, []mongo.IndexModel{
		{Keys: bson.D{{Key: "finished", Value: 1}, {Key: "csp", Value: 1}}, Options: options.Index().SetName("unfinished")}, // what is left to be done
		{Keys: bson.D{{Key: "expireAt", Value: 1}}, Options: options.Index().SetName("expiry")},                             // and retention
	}); err != nil {
		return fmt.Errorf("creating the indexes of %s: %w", Announced, err)
	}
	return nil
}

// announcedID is the key of a maintenance.
func announcedID(csp, id string) string { return csp + "/" + id }

// shown is a document as people and queries see it, with dates of BSON, and the
// document itself, which is what services read: a date of BSON holds milliseconds.
func shown(id string, revision int64, v any, exact []byte) (bson.D, error) {
	data, err := marshal(v)
	if err != nil {
		return nil, err
	}
	var fields bson.D
	if err := bson.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("%w: %w", provider.ErrUnstorable, err)
	}
	fields = slices.DeleteFunc(fields, func(e bson.E) bool { return e.Key == "revision" })
	return append(bson.D{{Key: "_id", Value: id}, {Key: "revision", Value: revision}, {Key: "exact", Value: string(exact)}}, fields...), nil
}

// SaveMaintenances implements store.Maintenances, in a transaction.
func (s *Store) SaveMaintenances(ctx context.Context, u store.MaintenanceUpdate) error {
	prepared, err := provider.PrepareMaintenances(u)
	if err == nil {
		err = s.saveAll(ctx, u.CSP, prepared)
	}
	if err != nil {
		return fmt.Errorf("saving %d maintenances of %s: %w", len(u.Events), u.CSP, err)
	}
	return nil
}

func (s *Store) saveAll(ctx context.Context, csp string, p provider.PreparedMaintenances) error {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	session, err := s.client.StartSession(options.Session().SetDefaultTransactionOptions(
		options.Transaction().SetReadConcern(readconcern.Snapshot())))
	if err != nil {
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	defer session.EndSession(ctx)
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) { return nil, s.saveEach(ctx, csp, p) })
	return err
}

func (s *Store) saveEach(ctx context.Context, csp string, p provider.PreparedMaintenances) error {
	if own := p.Provider; own != nil {
		doc, err := shown(csp, own.Revision, own, p.ProviderDoc)
		if err != nil {
			return err
		}
		if err := s.compareAndSet(ctx, Providers, []bson.D{doc}); err != nil {
			return err
		}
	}
	docs := make([]bson.D, len(p.Events))
	for i, e := range p.Events {
		var err error
		if docs[i], err = shown(announcedID(e.CSP, e.EventID), e.Revision, e.Event, e.Doc); err != nil {
			return err
		}
	}
	return s.compareAndSet(ctx, Announced, docs)
}

// compareAndSet writes documents of which each bears its id, its revision and then
// the rest: new ones at revision 1, others over the one before, of which what is not
// known here stays.
func (s *Store) compareAndSet(ctx context.Context, collection string, docs []bson.D) error {
	if len(docs) == 0 {
		return nil
	}
	models := make([]mongo.WriteModel, len(docs))
	replaced := int64(0)
	for i, doc := range docs {
		revision, _ := doc[1].Value.(int64)
		if revision == 1 {
			models[i] = mongo.NewInsertOneModel().SetDocument(doc)
			continue
		}
		replaced++
		models[i] = mongo.NewUpdateOneModel().SetFilter(bson.D{doc[0], {Key: "revision", Value: revision - 1}}).
			SetUpdate(bson.D{{Key: "$set", Value: doc[1:]}})
	}
	res, err := s.db.Collection(collection).BulkWrite(ctx, models)
	if mongo.IsDuplicateKeyError(err) {
		return fmt.Errorf("%w: %w", store.ErrConflict, err)
	}
	if err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	if res.MatchedCount != replaced {
		return fmt.Errorf("%d of %d documents: %w", replaced-res.MatchedCount, replaced, store.ErrConflict)
	}
	return nil
}

// storedMaintenance is a document as it is read back.
type storedMaintenance struct {
	ID       bson.RawValue `json:"_id"`
	EventID  bson.RawValue `json:"eventId"`
	Revision bson.RawValue `json:"revision"`
	Exact    bson.RawValue `json:"exact"`
}

func (s storedMaintenance) revision() int64 {
	n, ok := whole64(s.Revision)
	if !ok {
		return -1
	}
	return n
}

// Unfinished implements store.Maintenances.
func (s *Store) Unfinished(ctx context.Context, csp string) ([]maintenance.Event, error) {
	return s.announced(ctx, csp, bson.D{{Key: "finished", Value: false}, {Key: "csp", Value: csp}}, &provider.Announced{})
}

// Maintenances implements store.Maintenances.
func (s *Store) Maintenances(ctx context.Context, csp string, ids []string) ([]maintenance.Event, error) {
	var found provider.Announced
	for part := range slices.Chunk(ids, 1000) {
		keys := bson.A{}
		for _, id := range part {
			keys = append(keys, announcedID(csp, id))
		}
		_, err := s.announced(ctx, csp, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: keys}}}}, &found)
		if err != nil && !errors.Is(err, store.ErrUndecodable) {
			return nil, err
		}
	}
	return found.Sorted()
}

func (s *Store) announced(ctx context.Context, csp string, where bson.D, to *provider.Announced) ([]maintenance.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	found, err := all[storedMaintenance](ctx, s.db.Collection(Announced), where, options.Find().SetProjection(storedMaintenanceFields()))
	if err != nil {
		return nil, fmt.Errorf("reading the maintenances of %s: %w", csp, err)
	}
	for _, k := range found {
		id, _ := k.EventID.StringValueOK()
		exact, _ := k.Exact.StringValueOK() // anything else decodes as little as nothing
		to.Add(csp, id, k.revision(), []byte(exact))
	}
	return to.Sorted()
}

func storedMaintenanceFields() bson.D {
	return bson.D{{Key: "eventId", Value: 1}, {Key: "revision", Value: 1}, {Key: "exact", Value: 1}}
}

// Provider implements store.Maintenances.
func (s *Store) Provider(ctx context.Context, csp string) (maintenance.Provider, error) {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	var k storedMaintenance
	err := s.db.Collection(Providers).FindOne(ctx, byID(csp), options.FindOne().SetProjection(storedMaintenanceFields())).Decode(&k)
	if errors.Is(err, mongo.ErrNoDocuments) {
		err = store.ErrNotFound
	}
	var p maintenance.Provider
	if err == nil {
		exact, _ := k.Exact.StringValueOK()
		p, err = provider.DecodeProvider(csp, k.revision(), []byte(exact))
	}
	if err != nil {
		return maintenance.Provider{}, fmt.Errorf("reading provider %q: %w", csp, err)
	}
	return p, nil
}

// Forget implements store.Maintenances.
func (s *Store) Forget(ctx context.Context, now time.Time) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	res, err := s.db.Collection(Announced).DeleteMany(ctx, bson.D{
		{Key: "expireAt", Value: bson.D{{Key: "$lt", Value: now}, {Key: "$ne", Value: nil}}}, {Key: "finished", Value: true},
	})
	if err != nil {
		return 0, fmt.Errorf("deleting expired maintenances: %w", err)
	}
	return int(res.DeletedCount), nil
}
