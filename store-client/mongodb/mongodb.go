// Package mongodb keeps the records in a MongoDB replica set (or a sharded
// cluster) and follows them by change streams.
package mongodb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// DefaultDatabase is the database of an address that names none.
const DefaultDatabase = "HealthEventsDatabase"

// Collections of the database.
const (
	// Events holds the records.
	Events = "HealthEvents"
	// Positions holds, per consumer of a feed, how far it has come.
	Positions = "FeedPositions"
	// DeadLetters holds what could not be processed.
	DeadLetters = "DeadLetters"
	// state holds the append counter and the name of this database.
	state = "StoreState"
	// schemas holds the version of the schema; an account that may only append has no
	// right to it.
	schemas = "StoreSchema"
)

// schema is the version of what this program writes beside a record's own document: the
// fields that queries need. The database has that of the newest program which has opened
// it; nothing is written to one with a newer version.
const schema = 1

// Config is what a store is opened with.
type Config struct {
	Log     *slog.Logger
	Clock   clock.WithTicker
	Metrics *provider.Metrics
}

// Store implements store.Store.
type Store struct {
	Config
	client *mongo.Client
	db     *mongo.Database
	// home names this database; positions of another mean nothing here. It is another one
	// after the database was dropped or restored.
	home atomic.Pointer[string]
	// undecodable are the documents that lists leave out.
	undecodable provider.Undecodable
}

var (
	_ store.Store      = (*Store)(nil)
	_ store.Identified = (*Store)(nil)
	_ store.Reader     = (*reader)(nil)
)

// Open connects to the database at dsn, a connection string of MongoDB, and makes its
// indexes. Writes are acknowledged by the majority's journals and reads see only such
// writes, whatever the address sets.
func Open(ctx context.Context, dsn string, cfg Config) (*Store, error) {
	s, err := connect(ctx, dsn, cfg)
	if err != nil {
		return nil, err
	}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the database: %w", err), s.Close())
	}
	return s, nil
}

// OpenReader connects to the database at dsn for looking only. MongoDB knows no
// read-only connections: what is returned has no method that writes.
func OpenReader(ctx context.Context, dsn string, cfg Config) (store.Reader, error) {
	s, err := connect(ctx, dsn, cfg)
	if err != nil {
		return nil, err
	}
	err = s.goHome(ctx)
	if errors.Is(err, mongo.ErrNoDocuments) {
		err = s.refuseForeign(ctx)
	}
	if err == nil && s.home.Load() == nil {
		err = fmt.Errorf("%w: the database %s has no records (check that a service has opened this store)", provider.ErrUnusable, s.db.Name())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the database: %w", err), s.Close())
	}
	s.undecodable.Keep = nil
	return &reader{s}, nil
}

// connect checks that the server can do what the store promises.
func connect(ctx context.Context, dsn string, cfg Config) (*Store, error) {
	conf, database, err := parse(dsn)
	if err != nil {
		return nil, err
	}
	client, err := mongo.Connect(conf)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", provider.ErrUnusable, err)
	}
	s := &Store{Config: cfg, client: client, db: client.Database(database)}
	s.undecodable = provider.Undecodable{Keep: s.Dead, Clock: cfg.Clock, Log: cfg.Log, Metrics: cfg.Metrics}
	if err := s.checkServer(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the database: %w", err), s.Close())
	}
	if clearText(conf) {
		s.Log.Warn(provider.ClearText, "option", "tls=true")
	}
	return s, nil
}

// checkServer refuses a standalone server: it has neither change streams nor
// transactions.
func (s *Store) checkServer(ctx context.Context) error {
	h, err := s.hello(ctx)
	if err != nil {
		return err
	}
	if h.SetName == "" && h.Msg != "isdbgrid" {
		return fmt.Errorf("%w: the server is not a member of a replica set: a standalone server has no change streams", provider.ErrUnusable)
	}
	return nil
}

// hello is what the store reads of the server's greeting.
type hello struct {
	SetName   string
	Msg       string
	LocalTime time.Time
}

func (s *Store) hello(ctx context.Context) (hello, error) {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	var h hello
	var raw bson.Raw
	if err := s.db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&raw); err != nil {
		return h, fmt.Errorf("sending hello to the server: %w", err)
	}
	h.SetName, _ = raw.Lookup("setName").StringValueOK()
	h.Msg, _ = raw.Lookup("msg").StringValueOK()
	h.LocalTime, _ = raw.Lookup("localTime").TimeOK()
	return h, nil
}

// prepare makes the indexes, the append counter and the database's name, which
// many processes may do at once.
func (s *Store) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	if err := errors.Join(s.refuseForeign(ctx), s.upgrade(ctx)); err != nil {
		return err
	}
	if _, err := s.events().Indexes().CreateMany(ctx, indexes()); err != nil {
		return fmt.Errorf("creating the indexes: %w", err)
	}
	if _, err := s.db.Collection(DeadLetters).Indexes().CreateOne(ctx, bySource()); err != nil {
		return fmt.Errorf("creating the index of the dead letters: %w", err)
	}
	for id, first := range map[string]bson.D{"home": {{Key: "name", Value: uuid.NewString()}}, "append": {{Key: "n", Value: int64(0)}}} {
		_, err := s.db.Collection(state).UpdateOne(ctx, byID(id), bson.D{{Key: "$setOnInsert", Value: first}}, options.UpdateOne().SetUpsert(true))
		if err != nil && !mongo.IsDuplicateKeyError(err) {
			return fmt.Errorf("preparing the state %q: %w", id, err)
		}
	}
	if err := s.catchUp(ctx); err != nil {
		return fmt.Errorf("comparing the append counter with the records: %w", err)
	}
	if err := s.goHome(ctx); err != nil {
		return fmt.Errorf("reading the name of the database: %w", err)
	}
	return nil
}

// upgrade writes the version of the schema to the database. A newer version stays as it is.
func (s *Store) upgrade(ctx context.Context) error {
	if err := s.checkVersion(ctx); err != nil {
		if errors.Is(err, store.ErrNewer) {
			err = fmt.Errorf("%w: %w", provider.ErrUnusable, err)
		}
		return err
	}
	_, err := s.db.Collection(schemas).UpdateOne(ctx, byID("schema"), bson.D{{Key: "$max", Value: bson.D{{Key: "version", Value: int32(schema)}}}},
		options.UpdateOne().SetUpsert(true))
	if err != nil && !mongo.IsDuplicateKeyError(err) {
		return fmt.Errorf("writing the schema version: %w", err)
	}
	return nil
}

// checkVersion refuses to write to what a newer program has opened since.
func (s *Store) checkVersion(ctx context.Context) error {
	var is struct{ Version int }
	err := s.db.Collection(schemas).FindOne(ctx, byID("schema")).Decode(&is)
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) { // dropped: who opens it next makes it again
		return fmt.Errorf("reading the schema version: %w", err)
	}
	if is.Version > schema {
		return provider.NewerSchema(is.Version, schema)
	}
	return nil
}

// refuseForeign refuses a database that no service of this suite has opened and
// whose records are not of its form, before anything in it is changed. One that was
// opened is never refused: an account that may append must not keep it from opening.
func (s *Store) refuseForeign(ctx context.Context) error {
	err := s.goHome(ctx)
	if !errors.Is(err, mongo.ErrNoDocuments) {
		return err
	}
	var first bson.Raw
	err = s.events().FindOne(ctx, bson.D{}, options.FindOne().SetProjection(bson.D{{Key: "exact", Value: 1}})).Decode(&first)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("checking for records: %w", err)
	}
	if _, err := first.LookupErr("exact"); err != nil {
		return provider.Earlier(s.db.Name(), "the collection "+Events)
	}
	return nil
}

// maxBehind is how far the append counter of a backup may be behind its records. The
// services give no place beyond that: an account that may append could have given it, to
// use up all places.
const maxBehind = 1 << 32

// catchUp sees to it that no place is given twice: a backup that is not of one
// moment may hold records that its append counter does not know. Nothing but the
// place is decoded of them.
func (s *Store) catchUp(ctx context.Context) error {
	var counter struct{ N int64 }
	if err := s.db.Collection(state).FindOne(ctx, byID("append")).Decode(&counter); err != nil {
		return err
	}
	unknown := bson.D{{Key: "append", Value: bson.D{{Key: "$gt", Value: counter.N}, {Key: "$lte", Value: counter.N + maxBehind}}}}
	newest, err := all[struct{ Append bson.RawValue }](ctx, s.events(), unknown,
		options.Find().SetSort(bson.D{{Key: "append", Value: -1}}).SetLimit(1).SetProjection(bson.D{{Key: "append", Value: 1}}))
	if err != nil || len(newest) == 0 {
		return err
	}
	place, ok := newest[0].Append.AsInt64OK()
	if !ok {
		return nil
	}
	_, err = s.db.Collection(state).UpdateOne(ctx, byID("append"), bson.D{{Key: "$max", Value: bson.D{{Key: "n", Value: place}}}})
	return err
}

// goHome reads the name of the database.
func (s *Store) goHome(ctx context.Context) error {
	var named struct{ Name string }
	if err := s.db.Collection(state).FindOne(ctx, byID("home")).Decode(&named); err != nil {
		return err
	}
	s.home.Store(&named.Name)
	return nil
}

// Server implements store.Identified: the name of the database. A failover keeps
// it and loses nothing, because the majority has acknowledged every write.
func (s *Store) Server(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	err := s.goHome(ctx)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return "", nil // the database was dropped; the next append makes another
	}
	if err != nil {
		return "", fmt.Errorf("reading the identity of the server: %w", err)
	}
	return *s.home.Load(), nil
}

func (s *Store) events() *mongo.Collection { return s.db.Collection(Events) }

// Ping implements store.Store.
func (s *Store) Ping(ctx context.Context) error {
	if _, err := s.hello(ctx); err != nil {
		return fmt.Errorf("connecting to the store: %w", err)
	}
	return nil
}

// Close implements store.Store.
func (s *Store) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), provider.OperationTimeout)
	defer cancel()
	if err := s.client.Disconnect(ctx); err != nil {
		return fmt.Errorf("closing the store: %w", err)
	}
	return nil
}
