package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/store-client/internal/provider"
)

// Queryer is what a dialect reads with: a database or one connection of it.
type Queryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Reservation is the place of one transaction's writes in the store's order.
type Reservation struct {
	// Server is that of Head.
	Server string
	// Tx numbers the transaction. A transaction with a number below Head.Tx has
	// ended; within one server numbers are never used again.
	Tx int64
	// Seqs are growing numbers, one for each row.
	Seqs []int64
	// At is the store's clock.
	At time.Time
}

// Head is how far a feed may read: transactions numbered below Tx have ended,
// so no row below it can appear any more.
type Head struct {
	// Server names the history that positions belong to; positions of another server mean
	// nothing here.
	Server string
	Tx     int64
	At     time.Time
	// Shot is what can be seen at and above Tx, where transactions are under way
	// beside others that have ended; nil when there are none.
	Shot *Snapshot
}

// head reads how far feeds may read.
func (s *Store) head(ctx context.Context, q Queryer) (Head, error) {
	return s.Dialect.ReadHead(q.QueryRowContext(ctx, s.Dialect.HeadSQL).Scan)
}

// next is the number above all transactions that can be seen.
func (h Head) next() int64 {
	if h.Shot == nil {
		return h.Tx
	}
	return h.Shot.Next
}

// Snapshot defines which transactions have ended: those numbered below Next that are not
// among the Running.
type Snapshot struct {
	Next    int64   `json:"n"`
	Running []int64 `json:"r,omitempty"`
}

// after reports whether s was taken later than t on the same server; none is the
// earliest of all that have the same horizon.
func (s *Snapshot) after(t *Snapshot) bool {
	if s == nil || t == nil {
		return s != nil
	}
	return s.Next > t.Next || s.Next == t.Next && len(s.Running) < len(t.Running)
}

func (s *Snapshot) equal(t *Snapshot) bool {
	if s == nil || t == nil {
		return s == t
	}
	return s.Next == t.Next && slices.Equal(s.Running, t.Running)
}

// Dialect is where the SQL databases differ.
type Dialect struct {
	// Name of the provider, for errors and logs.
	Name string
	// ForUpdate ends a SELECT that locks its rows until the transaction ends.
	ForUpdate string
	// SkipLocked ends a SELECT that locks the rows nobody else has locked.
	SkipLocked string
	// InsertRows bounds the rows of one INSERT.
	InsertRows int
	// Arrays means that the rows of an INSERT are handed over as one array per column.
	Arrays bool
	// Joint has updates of many callers written in one statement, for databases that
	// take Arrays; nil writes each by itself.
	Joint *Joint
	// Serial keeps the process's write transactions one after the other, for
	// databases with a single writer.
	Serial bool
	// Busy reports whether beginning a transaction failed, after a wait, because of
	// another process's transaction; nil if that never is an error.
	Busy func(err error) bool
	// Time converts an instant to a column value; NULL for nil.
	Time func(t *time.Time) any
	// Reserve reserves n rows' places in the transaction and arranges that the feeds of all
	// processes are woken when it commits, with the causes.
	Reserve func(ctx context.Context, tx *sql.Tx, n int, causes []Cause) (Reservation, error)
	// HeadSQL is a query of one row that states how far feeds may read, as its
	// snapshot shows it; its column next is Head's next. ReadHead scans the row.
	HeadSQL  string
	ReadHead func(scan func(...any) error) (Head, error)
	// Holder names the oldest transaction under way on the server, for people;
	// nil where there is none to name.
	Holder func(ctx context.Context, q Queryer) (string, error)
	// Adopt makes the rows of a database that was restored from another server
	// readable: their transaction numbers mean nothing here. It is idempotent.
	Adopt func(ctx context.Context, db *sql.DB) error
	// Wake calls notify after other processes' writes until the context ends.
	Wake func(ctx context.Context, notify func(...Cause))
}

// Joint is what the statement needs that writes updates of many callers.
type Joint struct {
	// Places are expressions for a row's change_tx, change_seq and changed_at.
	Places [3]string
	// Effects is an expression that wakes the feeds of all processes for a row of rows
	// when the statement commits, which it makes durable.
	Effects string
	// Refused reports whether an error means that the server applied nothing.
	Refused func(err error) bool
}

// instant scans a time column of either database: a time or microseconds.
type instant struct{ t *time.Time }

// Scan implements sql.Scanner.
func (i *instant) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		i.t = nil
	case time.Time:
		v = v.UTC()
		i.t = &v
	case int64:
		t := time.UnixMicro(v).UTC()
		i.t = &t
	default:
		return fmt.Errorf("a time column holds %T", src)
	}
	return nil
}

func (i instant) time() time.Time {
	if i.t == nil {
		return time.Time{}
	}
	return *i.t
}

// schemaSQL reads the version of the schema.
const schemaSQL = "SELECT COALESCE(MAX(version), 0) FROM store_schema"

// Versions counts the versions of a schema, of which steps has a file each.
func Versions(steps fs.FS) int {
	names, err := fs.Glob(steps, "schema/*.sql")
	if err != nil {
		panic(err) // the pattern is a good one
	}
	return len(names)
}

// checkVersion refuses to write to a newer schema. Who migrates waits until the
// transaction has ended.
func (s *Store) checkVersion(ctx context.Context, tx *sql.Tx) error {
	if s.Schema == 0 {
		return nil
	}
	var version int
	if err := tx.QueryRowContext(ctx, schemaSQL).Scan(&version); err != nil {
		return fmt.Errorf("reading the schema version: %w", err)
	}
	if version > s.Schema {
		return provider.NewerSchema(version, s.Schema)
	}
	return nil
}

// Migrate brings the schema to the newest version inside tx, which must keep
// every other process out until it ends. steps holds one file per version, in
// order of their names; version 0 is an empty database.
func Migrate(ctx context.Context, tx *sql.Tx, steps fs.FS) error {
	names, err := fs.Glob(steps, "schema/*.sql")
	if err != nil {
		return fmt.Errorf("reading the schema: %w", err)
	}
	slices.Sort(names)
	if _, err := tx.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS store_schema (version BIGINT NOT NULL)"); err != nil {
		return fmt.Errorf("creating store_schema: %w", err)
	}
	var version int
	if err := tx.QueryRowContext(ctx, schemaSQL).Scan(&version); err != nil {
		return fmt.Errorf("reading the schema version: %w", err)
	}
	if version > len(names) {
		return fmt.Errorf("%w: %w", provider.ErrUnusable, provider.NewerSchema(version, len(names)))
	}
	for i, name := range names[version:] {
		step, err := fs.ReadFile(steps, name)
		if err != nil {
			return fmt.Errorf("reading the schema: %w", err)
		}
		if _, err := tx.ExecContext(ctx, string(step)); err != nil {
			return fmt.Errorf("applying %s: %w", path.Base(name), err)
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO store_schema (version) VALUES ($1)", version+i+1); err != nil {
			return fmt.Errorf("writing the schema version: %w", err)
		}
	}
	return nil
}
