package fleet

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/cutproxy"
	"github.com/nvidia/nvsentinel/store-client/mongotest"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// databaseServer is a process of the tests that keeps the records.
type databaseServer interface {
	Kill() error
	Restart(ctx context.Context) error
	Stop() error
}

// database prepares an empty database. With Lines the services reach its
// server through a connection that can be cut, with the delay that Distance sets.
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
		f.server, f.DSN, f.dial = server, server.DSN("postgres"), server.Dial
		f.own = f.DSN
	case "mongodb":
		server, err := mongotest.Start(ctx, mongotest.Options{Dir: filepath.Join(f.Dir, "mongodb")})
		if err != nil {
			return err
		}
		f.server, f.DSN, f.dial = server, server.DSN("nvsentinel"), server.Dial
		f.own = f.DSN
	default:
		return fmt.Errorf("store %q is not sqlite, postgresql or mongodb", f.options.Store)
	}
	if !f.options.Lines && f.options.Distance == 0 {
		return nil
	}
	dial := f.dial
	if f.options.Distance > 0 {
		dial = cutproxy.Late(dial, f.options.Distance/2)
	}
	line, err := cutproxy.Start(dial)
	if err != nil {
		return err
	}
	f.line = line
	u, err := url.Parse(f.DSN)
	if err != nil {
		return fmt.Errorf("leading the services to the database: %w", err)
	}
	u.Host = line.Addr()
	if f.options.Store == "postgresql" {
		q := u.Query()
		q.Del("host")
		q.Set("sslmode", "disable")
		u.RawQuery = q.Encode()
	}
	f.DSN = u.String()
	return nil
}

func (f *Fleet) openStore(ctx context.Context) error {
	var err error
	f.Store, err = storeopen.Open(ctx, f.own, storeopen.Options{SingleHost: true, Logger: slog.New(slog.DiscardHandler)})
	return err
}

// StopDatabase takes the database away and returns what brings it back:
// a server is killed, SQLite's file is locked by another process's writer
// (readers go on, as they do in its log).
func (f *Fleet) StopDatabase(ctx context.Context) (back func(context.Context) error, err error) {
	if f.server != nil {
		return f.server.Restart, f.server.Kill()
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

// commitMessage is what ends a transaction of PostgreSQL: the whole message, since the
// settings of every new session name a commit too. Updates that come together are one
// statement, which names its writers.
const commitMessage = "Q\x00\x00\x00\x0bcommit\x00"

// CutDatabase breaks every connection of the services to the database's server,
// and the next commit's after the server has it and before the client knows. It
// reports whether there is a line to cut.
func (f *Fleet) CutDatabase() bool {
	if f.line == nil {
		return false
	}
	f.line.Cut()
	if f.options.Store == "mongodb" {
		f.line.Set("writeConcern", cutproxy.CutAfter) // commands that write have one, readers have none
	} else {
		f.line.Set(commitMessage, cutproxy.CutAfter, string(record.FaultQuarantine)+"/", string(record.NodeDrainer)+"/", string(record.FaultRemediation)+"/")
	}
	return true
}

// StepDownDatabase makes the MongoDB server refuse every write for a while, as
// the primary does that has lost an election. It waits for a server that is
// away.
func (f *Fleet) StepDownDatabase(ctx context.Context, d time.Duration) error {
	server, ok := f.server.(interface {
		StepDown(ctx context.Context, d time.Duration) error
	})
	if !ok {
		return fmt.Errorf("store %q has no primary to step down", f.options.Store)
	}
	return onceUp(ctx, func() error { return server.StepDown(ctx, d) })
}

// onceUp does something with a server that may be away, again until it works.
func onceUp(ctx context.Context, do func() error) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}
