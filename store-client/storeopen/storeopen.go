// Package storeopen opens the store that an address names.
package storeopen

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/internal/sqlstore"
	"github.com/nvidia/nvsentinel/store-client/mongodb"
	"github.com/nvidia/nvsentinel/store-client/postgresql"
	"github.com/nvidia/nvsentinel/store-client/sqlite"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Options of a store; the zero value is usable.
type Options struct {
	// SingleHost admits sqlite, whose file only processes of one host can share.
	SingleHost bool
	// PollOnly makes feeds notice changes by polling every second only: for a
	// connection pooler that does not pass notifications, or a file system
	// without change events.
	PollOnly   bool
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Clock      clock.WithTicker
}

// retryEvery bounds the growing delay between two attempts to open.
const (
	retryFirst = 200 * time.Millisecond
	retryEvery = 5 * time.Second
)

// kind is one kind of store.
type kind struct {
	name    string
	schemes []string
	form    string
	// check returns an error if an address is invalid, without opening anything.
	check      func(dsn string) error
	open       func(ctx context.Context, dsn string, o Options, cfg sqlstore.Config) (store.Store, error)
	openReader func(ctx context.Context, dsn string, cfg sqlstore.Config) (store.Reader, error)
	// maintain opens what providers announce.
	maintain func(ctx context.Context, dsn string, o Options, cfg sqlstore.Config) (store.Maintenances, error)
}

var kinds = []kind{
	{"sqlite", []string{"sqlite"}, "sqlite:///absolute/path.db", checkSQLite, openSQLite, readSQLite, maintainSQLite},
	{"postgresql", []string{"postgres", "postgresql"}, "postgres://user@host/database", postgresql.Check, openPostgreSQL, readPostgreSQL, maintainPostgreSQL},
	{"mongodb", []string{"mongodb", "mongodb+srv"}, "mongodb://host,host/database", mongodb.Check, openMongoDB, readMongoDB, maintainMongoDB},
}

// Open opens the store at dsn: "sqlite:///absolute/path.db",
// "postgres://user@host/database" or "mongodb://host,host/database". A store that cannot be reached yet is asked
// again until ctx ends, and the waiting is logged; an address or a server for which waiting does
// not help is an error at once. The errors contain no password.
func Open(ctx context.Context, dsn string, o Options) (store.Store, error) {
	p, err := lookup(dsn)
	if err != nil {
		return nil, err
	}
	o, cfg := o.config()
	return await(ctx, o, func() (store.Store, error) { return p.open(ctx, dsn, o, cfg) })
}

// OpenMaintenances opens the store at dsn for what cloud providers announce, with an
// account that needs no right to the records (docs/tasks/choose-a-store.md). In PostgreSQL it makes
// nothing: it waits, as Open does, until a service has. Everything else is as with
// Open.
func OpenMaintenances(ctx context.Context, dsn string, o Options) (store.Maintenances, error) {
	p, err := lookup(dsn)
	if err != nil {
		return nil, err
	}
	o, cfg := o.config()
	return await(ctx, o, func() (store.Maintenances, error) { return p.maintain(ctx, dsn, o, cfg) })
}

// await opens something until it is open, ctx ends or waiting does not help.
func await[T any](ctx context.Context, o Options, open func() (T, error)) (T, error) {
	var none T
	for delay := retryFirst; ; delay = min(2*delay, retryEvery) {
		s, err := open()
		if err == nil {
			return s, nil
		}
		if errors.Is(err, provider.ErrUnusable) {
			return none, fmt.Errorf("opening the store: %w", err)
		}
		if ctx.Err() == nil {
			o.Logger.Warn("store not available, retrying", "again_in", delay, "error", err)
			select {
			case <-ctx.Done():
			case <-o.Clock.After(delay):
				continue
			}
		}
		// Also when it ended right behind an attempt that failed by itself.
		return none, fmt.Errorf("opening the store: %w: last: %w", ctx.Err(), err)
	}
}

// OpenReader opens the store at dsn for looking only. It does not wait for a
// store that cannot be reached, and admits a sqlite file without SingleHost:
// it has to be read on the host whose processes write it. The errors hold no
// password.
func OpenReader(ctx context.Context, dsn string, o Options) (store.Reader, error) {
	p, err := lookup(dsn)
	if err != nil {
		return nil, err
	}
	_, cfg := o.config()
	s, err := p.openReader(ctx, dsn, cfg)
	if err != nil {
		return nil, fmt.Errorf("opening the store for reading: %w", err)
	}
	return s, nil
}

// config fills in the defaults.
func (o Options) config() (Options, sqlstore.Config) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o, sqlstore.Config{Log: o.Logger, Clock: o.Clock, Metrics: provider.NewMetrics(o.Registerer), PollOnly: o.PollOnly}
}

// Check returns an error if the address is invalid, without opening anything.
func Check(dsn string, o Options) error {
	p, err := lookup(dsn)
	if err != nil {
		return err
	}
	if p.name == "sqlite" && !o.SingleHost {
		return errSingleHost
	}
	if err := p.check(dsn); err != nil {
		return fmt.Errorf("opening the store: %w", err)
	}
	return nil
}

// lookup never repeats a part of the address: whatever it begins with may be a secret
// that was meant for another place.
func lookup(dsn string) (kind, error) {
	var forms []string
	scheme, _, ok := strings.Cut(dsn, "://")
	for _, p := range kinds {
		forms = append(forms, p.form)
		for _, s := range p.schemes {
			if ok && s == scheme {
				return p, nil
			}
		}
	}
	return kind{}, fmt.Errorf("opening the store: the address has an unknown provider, known forms are %s", strings.Join(forms, ", "))
}

var errSingleHost = fmt.Errorf("%w: an SQLite file can be shared only by processes of one host, set --single-host to confirm that", provider.ErrUnusable)

// checkSQLite finds nothing: the path is checked when it is opened.
func checkSQLite(string) error { return nil }

func openSQLite(ctx context.Context, dsn string, o Options, cfg sqlstore.Config) (store.Store, error) {
	if !o.SingleHost {
		return nil, errSingleHost
	}
	return open(sqlite.Open(ctx, strings.TrimPrefix(dsn, "sqlite://"), cfg))
}

func readSQLite(ctx context.Context, dsn string, cfg sqlstore.Config) (store.Reader, error) {
	return open(sqlite.OpenReader(ctx, strings.TrimPrefix(dsn, "sqlite://"), cfg))
}

func openPostgreSQL(ctx context.Context, dsn string, _ Options, cfg sqlstore.Config) (store.Store, error) {
	return open(postgresql.Open(ctx, dsn, cfg))
}

func readPostgreSQL(ctx context.Context, dsn string, cfg sqlstore.Config) (store.Reader, error) {
	return open(postgresql.OpenReader(ctx, dsn, cfg))
}

// sqlKind is a SQL store as both ports.
type sqlKind interface {
	store.Store
	store.Reader
}

// open keeps a nil pointer from becoming a store that is not nil.
func open(s *sqlstore.Store, err error) (sqlKind, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

func openMongoDB(ctx context.Context, dsn string, _ Options, cfg sqlstore.Config) (store.Store, error) {
	s, err := mongodb.Open(ctx, dsn, mongodb.Config{Log: cfg.Log, Clock: cfg.Clock, Metrics: cfg.Metrics})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func readMongoDB(ctx context.Context, dsn string, cfg sqlstore.Config) (store.Reader, error) {
	return mongodb.OpenReader(ctx, dsn, mongodb.Config{Log: cfg.Log, Clock: cfg.Clock, Metrics: cfg.Metrics})
}

// maintainSQLite opens the file as usual: SQLite has no accounts.
func maintainSQLite(ctx context.Context, dsn string, o Options, cfg sqlstore.Config) (store.Maintenances, error) {
	if !o.SingleHost {
		return nil, errSingleHost
	}
	return maintain(sqlite.Open(ctx, strings.TrimPrefix(dsn, "sqlite://"), cfg))
}

func maintainPostgreSQL(ctx context.Context, dsn string, _ Options, cfg sqlstore.Config) (store.Maintenances, error) {
	return maintain(postgresql.OpenMaintenances(ctx, dsn, cfg))
}

func maintainMongoDB(ctx context.Context, dsn string, _ Options, cfg sqlstore.Config) (store.Maintenances, error) {
	return mongodb.OpenMaintenances(ctx, dsn, mongodb.Config{Log: cfg.Log, Clock: cfg.Clock, Metrics: cfg.Metrics})
}

// maintain keeps a nil pointer from becoming a store that is not nil.
func maintain(s *sqlstore.Store, err error) (store.Maintenances, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}
