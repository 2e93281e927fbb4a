// Package postgresql keeps the records in a PostgreSQL database (13 or newer).
package postgresql

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/internal/sqlstore"
)

//go:embed schema/*.sql
var schema embed.FS

const (
	// allowUnsafe is the parameter of the address that admits a server which
	// may lose what it acknowledged: throw-away servers of tests run so.
	allowUnsafe = "nvsentinel_allow_unsafe"
	// channel of the notifications; they carry nothing.
	channel = "nvsentinel_health_events"
	// schemaLock is the advisory lock under which the schema is brought up to
	// date and a restored database adopted.
	schemaLock = 0x6e7673656e74
	// oldestServer is the first version with 64-bit transaction numbers.
	oldestServer   = 130000
	connectTimeout = 10 * time.Second
	// idleLimit is when the server ends a transaction whose client has fallen
	// silent in it, in milliseconds: a frozen process must not keep its locks
	// from the one that takes over, nor hold the feeds back.
	idleLimit = "10000"
)

// Open connects to the database at dsn and brings its schema up to date. Every
// transaction commits with synchronous_commit=on; a server that runs with
// fsync=off or full_page_writes=off is refused unless the address says
// nvsentinel_allow_unsafe=true.
func Open(ctx context.Context, dsn string, cfg sqlstore.Config) (*sqlstore.Store, error) {
	conf, unsafe, err := parse(dsn)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDB(*conf)
	db.SetMaxOpenConns(10)
	db.SetMaxIdleConns(4)
	db.SetConnMaxIdleTime(5 * time.Minute)
	if err := prepare(ctx, db, unsafe); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the database: %w", err), db.Close())
	}
	cfg.Dialect = dialect(conf, cfg)
	return sqlstore.New(db, cfg), nil
}

// OpenReader connects to the database at dsn for looking only: every
// transaction of its connections is read-only. It neither creates the tables
// nor adopts a restored database, and how durable the server is does not matter
// to it.
func OpenReader(ctx context.Context, dsn string, cfg sqlstore.Config) (*sqlstore.Store, error) {
	conf, _, err := parse(dsn)
	if err != nil {
		return nil, err
	}
	conf.RuntimeParams["default_transaction_read_only"] = "on"
	db := stdlib.OpenDB(*conf)
	db.SetMaxOpenConns(4)
	if err := sqlstore.CheckSchema(ctx, db, schema); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the database: %w", err), db.Close())
	}
	cfg.Dialect = dialect(conf, cfg)
	return sqlstore.New(db, cfg), nil
}

// parse reads the address; pgx leaves passwords out of its errors.
func parse(dsn string) (*pgx.ConnConfig, bool, error) {
	conf, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", provider.ErrUnusable, err)
	}
	unsafe := conf.RuntimeParams[allowUnsafe]
	delete(conf.RuntimeParams, allowUnsafe)
	if unsafe != "" && unsafe != "true" && unsafe != "false" {
		return nil, false, fmt.Errorf("%w: %s is neither true nor false", provider.ErrUnusable, allowUnsafe)
	}
	if conf.ConnectTimeout == 0 {
		conf.ConnectTimeout = connectTimeout
	}
	// What the store's meaning rests on is not left to the server's defaults.
	conf.RuntimeParams["default_transaction_isolation"] = "read committed"
	conf.RuntimeParams["client_encoding"] = "UTF8"
	if conf.RuntimeParams["synchronous_commit"] != "remote_apply" {
		conf.RuntimeParams["synchronous_commit"] = "on"
	}
	if conf.RuntimeParams["idle_in_transaction_session_timeout"] == "" {
		conf.RuntimeParams["idle_in_transaction_session_timeout"] = idleLimit
	}
	if conf.RuntimeParams["application_name"] == "" {
		conf.RuntimeParams["application_name"] = "nvsentinel"
	}
	return conf, unsafe == "true", nil
}

// prepare checks the server and brings the schema up to date.
func prepare(ctx context.Context, db *sql.DB, unsafe bool) error {
	if err := checkServer(ctx, db, unsafe); err != nil {
		return err
	}
	err := locked(ctx, db, func(tx *sql.Tx) error { return sqlstore.Migrate(ctx, tx, schema) })
	if err != nil {
		return fmt.Errorf("preparing the schema: %w", err)
	}
	return adopt(ctx, db)
}

func checkServer(ctx context.Context, db *sql.DB, unsafe bool) error {
	var version int
	var encoding, commit, fsync, pages string
	err := db.QueryRowContext(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
current_setting('synchronous_commit'), current_setting('fsync'), current_setting('full_page_writes')`).
		Scan(&version, &encoding, &commit, &fsync, &pages)
	switch {
	case err != nil:
		return fmt.Errorf("reading the server's settings: %w", err)
	case version < oldestServer:
		return fmt.Errorf("%w: the server is older than PostgreSQL 13", provider.ErrUnusable)
	case encoding != "UTF8":
		return fmt.Errorf("%w: the database's encoding is %s, not UTF8", provider.ErrUnusable, encoding)
	case commit != "on" && commit != "remote_apply":
		return fmt.Errorf("%w: commits would not be durable: synchronous_commit=%s in spite of the connection's setting", provider.ErrUnusable, commit)
	case (fsync != "on" || pages != "on") && !unsafe:
		return fmt.Errorf("%w: commits would not be durable: the server runs with fsync=%s, full_page_writes=%s; the address may admit it with %s=true",
			provider.ErrUnusable, fsync, pages, allowUnsafe)
	}
	return nil
}

// locked runs f in a transaction that keeps out every other opening process.
func locked(ctx context.Context, db *sql.DB, f func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", schemaLock); err != nil {
		return errors.Join(fmt.Errorf("locking: %w", err), tx.Rollback())
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("committing: %w", err)
	}
	return nil
}
