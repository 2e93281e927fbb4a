package fleet

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"

	"github.com/nvidia/nvsentinel/internal/cutproxy"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// database prepares an empty database. With Lines the services reach
// PostgreSQL through a line that can be cut.
func (f *Fleet) database(ctx context.Context) error {
	switch f.options.Store {
	case "", "sqlite":
		f.DSN = "sqlite://" + filepath.Join(f.Dir, "records.db")
		f.own = f.DSN
		return nil
	case "postgresql":
		server, err := pgtest.Start(ctx, pgtest.Options{Dir: filepath.Join(f.Dir, "postgresql"), Durable: true})
		if err != nil {
			return err
		}
		f.postgres, f.DSN = server, server.DSN("postgres")
		f.own = f.DSN
	default:
		return fmt.Errorf("store %q is not sqlite or postgresql", f.options.Store)
	}
	if !f.options.Lines {
		return nil
	}
	line, err := cutproxy.Start(f.postgres.Dial)
	if err != nil {
		return err
	}
	f.line = line
	u, err := url.Parse(f.DSN)
	if err != nil {
		return fmt.Errorf("leading the services to the database: %w", err)
	}
	q := u.Query()
	q.Del("host")
	q.Set("sslmode", "disable")
	u.Host, u.RawQuery = line.Addr(), q.Encode()
	f.DSN = u.String()
	return nil
}

func (f *Fleet) openStore(ctx context.Context) error {
	var err error
	f.Store, err = storeopen.Open(ctx, f.own, storeopen.Options{SingleHost: true, Logger: slog.New(slog.DiscardHandler)})
	return err
}

// StopDatabase takes the database away and returns what brings it back:
// PostgreSQL is killed, SQLite's file is locked by another process's writer
// (readers go on, as they do in its log).
func (f *Fleet) StopDatabase(ctx context.Context) (back func(context.Context) error, err error) {
	if f.postgres != nil {
		return f.postgres.Restart, f.postgres.Kill()
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(f.Dir, "records.db")+"?_pragma=busy_timeout(60000)")
	if err != nil {
		return nil, fmt.Errorf("locking the database: %w", err)
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking the database: %w", err), db.Close())
	}
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return nil, errors.Join(fmt.Errorf("locking the database: %w", err), conn.Close(), db.Close())
	}
	return func(ctx context.Context) error {
		_, err := conn.ExecContext(ctx, "ROLLBACK")
		return errors.Join(err, conn.Close(), db.Close())
	}, nil
}

// CutDatabase breaks every connection of the services to PostgreSQL, and the
// next commit's after the server has it and before the client knows. It says
// whether there is a line to cut.
func (f *Fleet) CutDatabase() bool {
	if f.line == nil {
		return false
	}
	f.line.Cut()
	f.line.Set("commit", cutproxy.CutAfter)
	return true
}
