package remote_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/store-client/internal/sqltest"
	"github.com/nvidia/nvsentinel/store-client/remote"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// TestConformance: a store returns the same over HTTP as when it is opened.
func TestConformance(t *testing.T) {
	storetest.RunReader(t, storetest.Backend{
		Name:       "sqlite over HTTP",
		New:        storetest.SQLiteDSN,
		OpenReader: func(t testing.TB, dsn string) store.Reader { return opened(t, storetest.Reader(t, dsn)) },
		Damage: func(t testing.TB, dsn, consumer string, d storetest.Damage) {
			sqltest.Damage(t, raw(t, dsn), consumer, d)
		},
		Poison: func(t testing.TB, dsn, id string) { sqltest.Poison(t, raw(t, dsn), id) },
	})
}

// raw opens the file beside the store.
func raw(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+strings.TrimPrefix(dsn, "sqlite://")+"?_pragma=busy_timeout(120000)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// opened serves a store until the test ends, and opens it from the other side.
func opened(t testing.TB, records store.Reader) store.Reader {
	t.Helper()
	address := served(t, records, slog.New(slog.DiscardHandler))
	r := remote.Open(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	})
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// served serves a store until the test ends, and gives the address.
func served(t testing.TB, records store.Reader, log *slog.Logger) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- remote.Serve(ctx, l, records, log) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// TestConnectionRefused: every read returns the error of dialling.
func TestConnectionRefused(t *testing.T) {
	away := errors.New("no gateway is ready")
	r := remote.Open(func(context.Context) (net.Conn, error) { return nil, away })
	_, get := r.Get(t.Context(), "id")
	if ping := r.Ping(t.Context()); !errors.Is(ping, away) || !errors.Is(get, away) || strings.Contains(ping.Error(), "http://") {
		t.Errorf("get: %v; ping: %v; want %v and no address", get, ping, away)
	}
}

// TestAKeptConnectionDies: the next read takes another one.
func TestAKeptConnectionDies(t *testing.T) {
	address := served(t, storetest.Reader(t, dsnOf(t)), slog.New(slog.DiscardHandler))
	var conns []net.Conn
	r := remote.Open(func(ctx context.Context) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		conns = append(conns, c)
		return c, err
	})
	defer r.Close()
	for want := 1; want <= 3; want++ {
		if err := r.Ping(t.Context()); err != nil || len(conns) != want {
			t.Fatalf("read %d over %d connections: %v", want, len(conns), err)
		}
		conns[want-1].Close()
	}
}

// dsnOf is a store that a service has opened.
func dsnOf(t testing.TB) string {
	t.Helper()
	dsn := storetest.SQLiteDSN(t)
	storetest.Open(t, dsn, storeopen.Options{})
	return dsn
}
