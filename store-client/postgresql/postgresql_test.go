package postgresql_test

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/cutproxy"
	"github.com/nvidia/nvsentinel/store-client/internal/sqltest"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

func TestMain(m *testing.M) {
	if storetest.Child() {
		os.Exit(m.Run())
	}
	os.Exit(pgtest.Main(m))
}

func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Backend{
		Name: "postgresql",
		New: func(t testing.TB) string {
			_, dsn := pgtest.Database(t)
			return dsn
		},
		Interrupt: func(t testing.TB, dsn string) (store.Store, func(bool)) {
			p := line(t)
			return storetest.Open(t, through(t, p, dsn), storeopen.Options{}), func(before bool) {
				action := cutproxy.CutAfter
				if before {
					action = cutproxy.CutBefore
				}
				p.Set(commitMessage, action, jointMessage)
			}
		},
		Late:   late,
		Deafen: deafen,
		Damage: func(t testing.TB, dsn, consumer string, d storetest.Damage) {
			sqltest.Damage(t, raw(t, dsn), consumer, d)
		},
		Poison: func(t testing.TB, dsn, id string) { sqltest.Poison(t, raw(t, dsn), id) },
		Edit: func(t testing.TB, dsn, id string, change func([]byte) []byte) {
			db := raw(t, dsn)
			defer db.Close() // not with the test: there are many
			sqltest.Edit(t, db, id, change)
		},
		Schema:            func(t testing.TB, dsn string, newer bool) { sqltest.Schema(t, raw(t, dsn), newer) },
		PoisonMaintenance: func(t testing.TB, dsn, csp, id string) { sqltest.PoisonMaintenance(t, raw(t, dsn), csp, id) },
	})
}

// commitMessage is the whole message of the protocol that ends a transaction;
// the word alone is also in synchronous_commit.
const commitMessage = "Q\x00\x00\x00\x0bcommit\x00"

// jointMessage is part of the message that writes updates of the suite together: it
// bears who writes.
const jointMessage = string(record.NodeDrainer)

// raw opens the database beside the store.
func raw(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	conf, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	delete(conf.RuntimeParams, "nvsentinel_allow_unsafe")
	db := stdlib.OpenDB(*conf)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// line is a proxy before the server of the tests.
func line(t testing.TB) *cutproxy.Proxy {
	t.Helper()
	p, err := cutproxy.Start(pgtest.Shared(t).Dial)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// through is the address of the database at dsn by way of a proxy.
func through(t testing.TB, p *cutproxy.Proxy, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Del("host")
	q.Set("sslmode", "disable")
	u.Host, u.RawQuery = p.Addr(), q.Encode()
	return u.String()
}

// late keeps the commit of r's transaction back.
func late(t testing.TB, dsn string, r record.Record) func() {
	p := line(t)
	// The server is to wait for the commit however long that takes.
	s := storetest.Open(t, through(t, p, dsn)+"&idle_in_transaction_session_timeout=0", storeopen.Options{})
	trap := p.Set(commitMessage, cutproxy.Hold)
	var writer sync.WaitGroup
	writer.Go(func() { storetest.MustAppend(t, s, r) })
	select {
	case <-trap.Sprung():
	case <-time.After(2 * time.Minute):
		t.Fatal("the late transaction does not come to its commit")
	}
	return func() {
		trap.Release()
		writer.Wait()
	}
}

// deafen ends the connections that listen.
func deafen(t testing.TB, dsn string) {
	db := raw(t, dsn)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		var ended int
		err := db.QueryRowContext(ctx, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND query LIKE 'LISTEN %'`).Scan(&ended)
		if err != nil {
			t.Fatalf("ending the listeners: %v", err)
		}
		if ended > 0 {
			return
		}
	}
}
