// Package postgresql keeps the records in a PostgreSQL database (13 or newer).
package postgresql

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/internal/sqlstore"
)

//go:embed schema/*.sql
var schema embed.FS

const (
	// channel of the notifications, which carry a sqlstore.Cause.
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

// Open connects to the database at dsn and brings its schema up to date. Every transaction
// commits with synchronous_commit=on; a server that runs with fsync=off or
// full_page_writes=off is refused unless the address contains nvsentinel_allow_unsafe=true.
func Open(ctx context.Context, dsn string, cfg sqlstore.Config) (*sqlstore.Store, error) {
	p, err := parse(dsn)
	if err != nil {
		return nil, err
	}
	db := p.open(p.limits.service())
	if err := prepare(ctx, db, p.unsafe); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the database: %w", p.hint(err)), db.Close())
	}
	if p.clear {
		cfg.Log.Warn(provider.ClearText, "option", "sslmode=verify-full")
	}
	cfg.Dialect, cfg.Schema = dialect(p.conn, cfg), sqlstore.Versions(schema)
	return sqlstore.New(db, cfg), nil
}

// OpenReader connects to the database at dsn for looking only: every
// transaction of its connections is read-only. It neither creates the tables
// nor adopts a restored database, and how durable the server is does not matter
// to it.
func OpenReader(ctx context.Context, dsn string, cfg sqlstore.Config) (*sqlstore.Store, error) {
	p, err := parse(dsn)
	if err != nil {
		return nil, err
	}
	p.conn.RuntimeParams["default_transaction_read_only"] = "on"
	db := p.open(p.limits.few())
	if err := checkSchema(ctx, db); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the database: %w", p.hint(err)), db.Close())
	}
	cfg.Dialect = dialect(p.conn, cfg)
	cfg.ReadOnly = true
	return sqlstore.New(db, cfg), nil
}

// checkSchema is sqlstore.CheckSchema, and its error names what is in a database that is
// not of this suite.
func checkSchema(ctx context.Context, db *sql.DB) error {
	err := sqlstore.CheckSchema(ctx, db, schema)
	if err == nil {
		return nil
	}
	var database, foreign string
	const query = `SELECT current_database(), CASE
WHEN to_regclass('health_events') IS NOT NULL AND to_regclass('store_schema') IS NULL THEN 'health_events'
WHEN to_regclass('maintenance_events') IS NOT NULL AND NOT EXISTS (
  SELECT FROM pg_attribute WHERE attrelid = to_regclass('maintenance_events') AND attname = 'is_finished') THEN 'maintenance_events'
ELSE '' END`
	if asking := db.QueryRowContext(ctx, query).Scan(&database, &foreign); asking == nil && foreign != "" {
		return provider.Earlier(database, "the table "+foreign)
	}
	return err
}

// lockVersion waits for the writes that are under way, each of which has read the
// version, and keeps others from beginning before the new one can be seen.
const lockVersion = `DO $$ BEGIN
IF to_regclass('store_schema') IS NOT NULL THEN LOCK TABLE store_schema IN ACCESS EXCLUSIVE MODE; END IF;
END $$`

// prepare checks the server and brings the schema up to date. Where it is, no
// lock is waited for: who may connect may take advisory locks, and must not keep
// a service from starting.
func prepare(ctx context.Context, db *sql.DB, unsafe bool) error {
	if err := checkServer(ctx, db, unsafe); err != nil {
		return err
	}
	err := checkSchema(ctx, db)
	if err == nil {
		return adopt(ctx, db)
	}
	if errors.Is(err, provider.ErrForeign) {
		return err
	}
	err = locked(ctx, db, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, lockVersion); err != nil {
			return fmt.Errorf("waiting for the writes of other programs: %w", err)
		}
		return sqlstore.Migrate(ctx, tx, schema)
	})
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
		return fmt.Errorf("%w: commits would not be durable: the server runs with fsync=%s, full_page_writes=%s. To accept this risk, set %s=true in the address",
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

// queryMaintenances is the query whether the account may keep what providers announce.
const queryMaintenances = `SELECT COALESCE(bool_and(has_table_privilege(to_regclass(t), right_name)), false)
FROM unnest('{maintenance_events,maintenance_providers}'::text[]) AS t, unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) AS right_name
WHERE to_regclass('maintenance_events') IS NOT NULL`

// OpenMaintenances connects to the database at dsn for what providers announce, with
// an account that needs no right to another table (see roles/maintenance_role.sql).
// It makes no tables and waits for a service that does.
func OpenMaintenances(ctx context.Context, dsn string, cfg sqlstore.Config) (*sqlstore.Store, error) {
	p, err := parse(dsn)
	if err != nil {
		return nil, err
	}
	db := p.open(p.limits.few())
	if err := checkMaintenances(ctx, db, p.unsafe); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the database: %w", p.hint(err)), db.Close())
	}
	if p.clear {
		cfg.Log.Warn(provider.ClearText, "option", "sslmode=verify-full")
	}
	cfg.Dialect = dialect(p.conn, cfg)
	return sqlstore.New(db, cfg), nil
}

func checkMaintenances(ctx context.Context, db *sql.DB, unsafe bool) error {
	if err := checkServer(ctx, db, unsafe); err != nil {
		return err
	}
	var may bool
	if err := db.QueryRowContext(ctx, queryMaintenances).Scan(&may); err != nil {
		return fmt.Errorf("reading the permissions of the account: %w", err)
	}
	if !may {
		return errors.New("the account has no permission to store maintenances: start a service of this version to create the tables, then run maintenance_role.sql")
	}
	return nil
}

// Pipeline is what a feed asks the server for: the rows of health_events for
// which Where holds. It is to PostgreSQL what a change stream's $match is to
// MongoDB.
type Pipeline struct {
	// Where is a condition on the columns of health_events; $1 and so on are Args.
	Where string
	Args  []any
	// InsertsOnly: rows come in the order of their insertions, each once.
	// Otherwise in the order of their last changes, again after each.
	InsertsOnly bool
}

// PipelineOf is the pipeline of a selector.
func PipelineOf(s record.Selector) Pipeline {
	where, args := sqlstore.Condition(s)
	return Pipeline{Where: where, Args: args, InsertsOnly: s.InsertsOnly}
}

// BuildAllHealthEventInsertsPipeline is what the exporter follows.
func BuildAllHealthEventInsertsPipeline() Pipeline {
	return PipelineOf(record.AllHealthEventInserts())
}

// BuildProcessableHealthEventInsertsPipeline is what fault-quarantine follows.
func BuildProcessableHealthEventInsertsPipeline() Pipeline {
	return PipelineOf(record.ProcessableHealthEventInserts())
}

// BuildProcessableNonFatalUnhealthyInsertsPipeline is what the analyzer
// follows. Despite its public name it does not test isFatal.
func BuildProcessableNonFatalUnhealthyInsertsPipeline() Pipeline {
	return PipelineOf(record.ProcessableNonFatalUnhealthyInserts())
}

// BuildNodeQuarantineStatusPipeline is what node-drainer follows.
func BuildNodeQuarantineStatusPipeline() Pipeline {
	return PipelineOf(record.NodeQuarantineStatus())
}

// BuildQuarantinedAndDrainedNodesPipeline is what fault-remediation follows.
func BuildQuarantinedAndDrainedNodesPipeline() Pipeline {
	return PipelineOf(record.QuarantinedAndDrainedNodes())
}
