package postgresql_test

import (
	"context"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/cutproxy"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// hasty looks around far more often than it is asked to.
type hasty struct{ clock.RealClock }

func (h hasty) NewTicker(time.Duration) clock.Ticker {
	return h.RealClock.NewTicker(100 * time.Millisecond)
}

// count asks a server how many records it has.
func count(ctx context.Context, t *testing.T, s *pgtest.Server) (n int) {
	t.Helper()
	conn, err := s.Connect(ctx, "postgres")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if err := conn.QueryRow(ctx, "SELECT count(*) FROM health_events").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// until waits for a condition.
func until(ctx context.Context, t *testing.T, what string, done func() bool) {
	t.Helper()
	for !done() {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%s: not within the time of the test", what)
		}
	}
}

// TestAsynchronousStandbyPromoted: the primary dies with acknowledged records
// that its standby has not got. They are appended again to the promoted one, and
// the feed delivers them.
func TestAsynchronousStandbyPromoted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	primary, err := pgtest.Start(ctx, pgtest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	stop := func(s *pgtest.Server) {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { stop(primary) })
	var at atomic.Pointer[pgtest.Server]
	at.Store(primary)
	p, err := cutproxy.Start(func(ctx context.Context) (net.Conn, error) { return at.Load().Dial(ctx) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(primary.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	u.Host, u.RawQuery = p.Addr(), "user=postgres&sslmode=disable&nvsentinel_allow_unsafe=true"
	s := storetest.Open(t, u.String(), storeopen.Options{KeepFor: 10 * time.Minute, KeepBytes: 1 << 20, Clock: hasty{}})
	f := feedOf(t, s, "c", all())
	var records []record.Record
	for range 4 {
		records = append(records, storetest.Record("n"))
	}
	storetest.MustAppend(t, s, records[0])
	storetest.Receive(t, f, 1)

	standby, err := primary.Standby(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(standby) })
	until(ctx, t, "the standby follows", func() bool { return count(ctx, t, standby) == 1 })
	if err := standby.Detach(ctx); err != nil {
		t.Fatal(err)
	}
	until(ctx, t, "the standby is detached", func() bool {
		var n int
		conn, err := primary.Connect(ctx, "postgres")
		if err == nil {
			err = conn.QueryRow(ctx, "SELECT count(*) FROM pg_stat_replication").Scan(&n)
			_ = conn.Close(ctx)
		}
		return err == nil && n == 0
	})
	storetest.MustAppend(t, s, records[1], records[2])
	if err := primary.Slay(); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(ctx); err != nil {
		t.Fatal(err)
	}
	if n := count(ctx, t, standby); n != 1 {
		t.Fatalf("the standby has %d records; the test means nothing unless some are lost", n)
	}
	at.Store(standby)
	until(ctx, t, "the store takes records again", func() bool {
		_, err := s.Append(ctx, records[3:])
		return err == nil
	})
	until(ctx, t, "what was lost is appended again", func() bool { return count(ctx, t, standby) == len(records) })
	missing := map[string]bool{records[1].ID: true, records[2].ID: true, records[3].ID: true}
	until(ctx, t, "the feed delivers them", func() bool {
		r, _, err := f.Next(ctx)
		if err == nil {
			delete(missing, r.ID)
		}
		return len(missing) == 0
	})
}
