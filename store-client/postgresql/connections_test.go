package postgresql_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/internal/cutproxy"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// swinging is a store whose connections are counted as they are opened, each some
// time after it is asked for, and one swing of its load: one reader, then many.
func swinging(t *testing.T, options string) (dsn string, opened *atomic.Int32, swing func()) {
	t.Helper()
	_, dsn = pgtest.Database(t)
	opened = new(atomic.Int32)
	p, err := cutproxy.Start(cutproxy.Late(func(ctx context.Context) (net.Conn, error) {
		opened.Add(1)
		return pgtest.Shared(t).Dial(ctx)
	}, 5*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	storetest.Open(t, dsn, storeopen.Options{}) // makes the tables
	s, err := storeopen.Open(t.Context(), through(t, p, dsn)+options, storeopen.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return dsn, opened, func() {
		for _, many := range []int{1, 40} {
			var burst sync.WaitGroup
			for range many {
				burst.Go(func() {
					if err := s.Ping(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			burst.Wait()
		}
	}
}

// backends are the server's processes for services in a database.
func backends(t *testing.T, dsn string) (ids string) {
	t.Helper()
	err := raw(t, dsn).QueryRowContext(t.Context(), `SELECT string_agg(pid || ' since ' || backend_start, ', ' ORDER BY pid) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'nvsentinel'`).Scan(&ids)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// TestConnectionsAreKept: what a burst of work opened serves the next one. To
// connect to a distant server takes longer than the work, and the server more of its
// processor.
func TestConnectionsAreKept(t *testing.T) {
	for options, most := range map[string]int32{"": 10, "&pool_max_conns=16": 16} {
		dsn, opened, swing := swinging(t, options)
		swing()
		first, of := opened.Load(), backends(t, dsn)
		for range 4 {
			swing()
		}
		if n := opened.Load(); n != first || n > most {
			t.Errorf("%q: %d connections were opened, and %d by the first burst; want no more, and at most %d", options, n, first, most)
		}
		if now := backends(t, dsn); now != of {
			t.Errorf("%q: served by\n%s\nand then by\n%s", options, of, now)
		}
	}
}

// TestFewConnectionsAreKept: few connections are kept if the address sets that.
func TestFewConnectionsAreKept(t *testing.T) {
	_, opened, swing := swinging(t, "&pool_min_conns=1")
	swing()
	first := opened.Load()
	swing()
	if n := opened.Load(); n == first {
		t.Errorf("all %d connections were kept", n)
	}
}
