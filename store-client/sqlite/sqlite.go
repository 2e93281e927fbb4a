// Package sqlite keeps the records in one SQLite file that several processes
// of one host share: the default for demos, tests and single-host set-ups.
package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/utils/clock"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/internal/sqlstore"
)

//go:embed schema/*.sql
var schema embed.FS

// busyTimeout is how long SQLite waits for another process's lock; it does not
// notice the end of the context meanwhile. Writes wait again until it has ended.
const busyTimeout = 2 * time.Second

// queryHead reads the counter of transactions.
const queryHead = "SELECT history, tx + 1 AS next FROM store_counter"

// Open opens the file at path, which must be absolute, and creates it and its
// schema when it is not there. Every commit is on disk when it returns:
// journal_mode=WAL and synchronous=FULL are set and read back.
func Open(ctx context.Context, path string, cfg sqlstore.Config) (*sqlstore.Store, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("%w: the path %q is not absolute", provider.ErrUnusable, path)
	}
	db, err := open(dsn(path), path)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	if err := prepare(ctx, db); err != nil {
		return nil, errors.Join(fmt.Errorf("opening %s: %w", path, err), db.Close())
	}
	cfg.Dialect, cfg.Schema = dialect(path, cfg), sqlstore.Versions(schema)
	return sqlstore.New(db, cfg), nil
}

// OpenReader opens the file at path, which must be absolute and exist, for
// looking only: every connection is opened with mode=ro and query_only. It
// makes no record, table or file; SQLite itself may put its empty log beside a
// file that no service has open.
func OpenReader(ctx context.Context, path string, cfg sqlstore.Config) (*sqlstore.Store, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("%w: the path %q is not absolute", provider.ErrUnusable, path)
	}
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	q := url.Values{"mode": {"ro"}, "_pragma": {fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()), "query_only(1)"}}
	db, err := open((&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String(), path)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	if err := sqlstore.CheckSchema(ctx, db, schema); err != nil {
		return nil, errors.Join(fmt.Errorf("opening %s: %w", path, err), db.Close())
	}
	cfg.Dialect = dialect(path, cfg)
	cfg.ReadOnly = true
	return sqlstore.New(db, cfg), nil
}

func dsn(path string) string {
	q := url.Values{
		"_txlock": {"immediate"},
		"_pragma": {
			fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()),
			"journal_mode(WAL)",
			"synchronous(FULL)",
		},
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String()
}

// prepare checks durability and brings the schema up to date.
func prepare(ctx context.Context, db *sql.DB) error {
	var journal string
	var synchronous int
	if err := db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&journal); err != nil {
		return fmt.Errorf("reading journal_mode: %w", err)
	}
	if err := db.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&synchronous); err != nil {
		return fmt.Errorf("reading synchronous: %w", err)
	}
	const full = 2
	if journal != "wal" || synchronous < full {
		return fmt.Errorf("%w: commits would not be durable with journal_mode=%s, synchronous=%d", provider.ErrUnusable, journal, synchronous)
	}
	// Transactions are immediate: this one keeps the other processes out.
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("locking the schema: %w", err)
	}
	if err := sqlstore.Migrate(ctx, tx, schema); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("committing the schema: %w", err)
	}
	return nil
}

// busy reports whether an error is another process's lock, which passes.
func busy(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && (e.Code()&0xff == sqlite3.SQLITE_BUSY || e.Code()&0xff == sqlite3.SQLITE_LOCKED)
}

func dialect(path string, cfg sqlstore.Config) sqlstore.Dialect {
	return sqlstore.Dialect{
		Name:       "sqlite",
		InsertRows: 50,
		Serial:     true,
		Busy:       busy,
		Time: func(t *time.Time) any {
			if t == nil {
				return nil
			}
			return t.UnixMicro()
		},
		Reserve: func(ctx context.Context, tx *sql.Tx, n int, _ []sqlstore.Cause) (sqlstore.Reservation, error) {
			st := sqlstore.Reservation{At: cfg.Clock.Now()}
			var last int64
			err := tx.QueryRowContext(ctx, "UPDATE store_counter SET tx = tx + 1, seq = seq + $1 RETURNING history, tx, seq", n).Scan(&st.Server, &st.Tx, &last)
			st.Server += "/" + fileID(path)
			for i := range n {
				st.Seqs = append(st.Seqs, last-int64(n)+int64(i)+1)
			}
			return st, err
		},
		// A writer raises the counter in its own transaction, and there is one writer
		// at a time: what is visible is everything up to it.
		HeadSQL: queryHead,
		ReadHead: func(scan func(...any) error) (sqlstore.Head, error) {
			h := sqlstore.Head{At: cfg.Clock.Now()}
			err := scan(&h.Server, &h.Tx)
			h.Server += "/" + fileID(path) // a backup has the same history
			return h, err
		},
		// A file is restored with its counter: its rows stay readable.
		Adopt: func(context.Context, *sql.DB) error { return nil },
		Wake: func(ctx context.Context, notify func(...sqlstore.Cause)) {
			watch(ctx, path, cfg.Clock, cfg.Log, func() { notify(sqlstore.Anything) })
		},
	}
}

// A write to the log is seen before its commit is: the log is flushed first.
// So a write wakes at once and again after growing delays.
const (
	firstEcho = 5 * time.Millisecond
	lastEcho  = 200 * time.Millisecond
)

// watch wakes after writes to the file's write-ahead log until ctx ends. If the
// file cannot be watched, the feeds' polling is left.
func watch(ctx context.Context, path string, clk clock.Clock, log *slog.Logger, notify func()) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("database file not watched, change feeds polling instead", "error", err)
		return
	}
	defer w.Close()
	// The folder is watched because the log is removed and created again.
	if err := w.Add(filepath.Dir(path)); err != nil {
		log.Warn("database file not watched, change feeds polling instead", "error", err)
		return
	}
	notify() // what was written before was not heard
	var echo <-chan time.Time
	delay := firstEcho
	for {
		select {
		case <-ctx.Done():
			return
		case ev, ok := <-w.Events:
			if !ok {
				return
			}
			if ev.Name == path+"-wal" {
				notify()
				delay = firstEcho
				echo = clk.After(delay)
			}
		case <-echo:
			notify()
			echo = nil
			if delay < lastEcho {
				delay *= 3
				echo = clk.After(delay)
			}
		case err, ok := <-w.Errors:
			if !ok {
				return
			}
			log.Warn("watch of the database file interrupted", "error", err)
			notify()
		}
	}
}
