package fleet

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/nvidia/nvsentinel/store-client/mongodb"
)

// EmptyStore takes every record away, as a TRUNCATE or a dropped collection
// does, beneath services that go on.
func (f *Fleet) EmptyStore(ctx context.Context) error {
	switch server := f.server.(type) {
	case nil:
		return f.onSQLite(ctx, "DELETE FROM health_events")
	case interface {
		Exec(ctx context.Context, database, statements string) error
	}:
		return server.Exec(ctx, "postgres", "TRUNCATE health_events")
	case interface {
		Drop(ctx context.Context, database, collection string) error
	}:
		return server.Drop(ctx, "nvsentinel", mongodb.Events)
	}
	return fmt.Errorf("store %q can not be emptied", f.options.Store)
}

// BackUpStore keeps the store's present state and returns what puts it back,
// whole: records, positions and counters. A server is down meanwhile, as it is
// when its disk is put back; of SQLite every table is.
func (f *Fleet) BackUpStore(ctx context.Context) (restore func(context.Context) error, err error) {
	kept := filepath.Join(f.Dir, "backup")
	if err := os.RemoveAll(kept); err != nil {
		return nil, err
	}
	if f.server == nil {
		return f.restoreSQLite(kept), f.onSQLite(ctx, "VACUUM INTO '"+kept+"'")
	}
	data := filepath.Join(f.Dir, f.options.Store, "data")
	swap := func(ctx context.Context, do func() error) error {
		return errors.Join(f.server.Kill(), do(), f.server.Restart(ctx))
	}
	restore = func(ctx context.Context) error {
		return swap(ctx, func() error { return errors.Join(os.RemoveAll(data), copyTree(ctx, kept, data)) })
	}
	return restore, swap(ctx, func() error { return copyTree(ctx, data, kept) })
}

// copyTree copies a folder with its owners and modes.
func copyTree(ctx context.Context, from, to string) error {
	out, err := exec.CommandContext(ctx, "cp", "-a", from, to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("copying the database: %w: %s", err, out)
	}
	return nil
}

// onSQLite carries out statements on one connection to the services' file.
func (f *Fleet) onSQLite(ctx context.Context, statements ...string) error {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(f.Dir, "records.db")+"?_pragma=busy_timeout(60000)")
	if err != nil {
		return fmt.Errorf("opening the database: %w", err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, s := range statements {
		if _, err := db.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// tablesOf lists the tables of a file.
func tablesOf(ctx context.Context, path string) ([]string, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	var all string
	err = db.QueryRowContext(ctx, "SELECT group_concat(name) FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'").Scan(&all)
	return strings.Split(all, ","), err
}

// restoreSQLite puts all tables back in one transaction: the services have the
// file open.
func (f *Fleet) restoreSQLite(kept string) func(context.Context) error {
	return func(ctx context.Context) error {
		tables, err := tablesOf(ctx, kept)
		if err != nil {
			return fmt.Errorf("reading the backup: %w", err)
		}
		statements := []string{"ATTACH '" + kept + "' AS kept", "BEGIN IMMEDIATE"}
		for _, table := range tables {
			statements = append(statements, "DELETE FROM main."+table, "INSERT INTO main."+table+" SELECT * FROM kept."+table)
		}
		return f.onSQLite(ctx, append(statements, "COMMIT")...)
	}
}

// HoldTransaction opens a long writing transaction in another database of the
// PostgreSQL server, as a nightly batch of somebody else does, and returns what
// ends it. It waits for a server that is away.
func (f *Fleet) HoldTransaction(ctx context.Context) (end func(context.Context) error, err error) {
	server, ok := f.server.(interface {
		Connect(ctx context.Context, database string) (*pgx.Conn, error)
	})
	if !ok {
		return nil, fmt.Errorf("store %q has no other databases", f.options.Store)
	}
	var conn *pgx.Conn
	err = onceUp(ctx, func() (err error) {
		if conn, err = server.Connect(ctx, "template1"); err != nil {
			return fmt.Errorf("holding a transaction: %w", err)
		}
		if _, err = conn.Exec(ctx, "BEGIN; CREATE TABLE batch (n int); INSERT INTO batch VALUES (1)"); err != nil {
			_ = conn.Close(ctx) // it is of no use any more
			return fmt.Errorf("holding a transaction: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { // which rolls it back
		_ = conn.Close(ctx) // a server that was away meanwhile has ended it
		return nil
	}, nil
}
