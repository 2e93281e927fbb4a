package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/nvidia/nvsentinel/internal/cutproxy"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
)

// TestAFailoverLosesNothing: the primary of PostgreSQL dies with records that it
// has acknowledged and its asynchronous standby has not got. The gateway dies with
// it, and so does the node's connector. All records are in the promoted standby
// afterwards, in their order, each once.
func TestAFailoverLosesNothing(t *testing.T) {
	primary := pgtest.Own(t, pgtest.Options{})
	var at atomic.Pointer[pgtest.Server]
	at.Store(primary)
	line, err := cutproxy.Start(func(ctx context.Context) (net.Conn, error) { return at.Load().Dial(ctx) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := line.Close(); err != nil {
			t.Error(err)
		}
	})
	a := newAvenue(t)
	u := url.URL{Scheme: "postgres", Host: line.Addr(), Path: "/postgres", RawQuery: "user=postgres&sslmode=disable&nvsentinel_allow_unsafe=true"}
	a.store = u.String()
	gateway, connector := a.gateway(0), a.connector()
	var ids []string
	put := func(seq int) {
		t.Helper()
		e := event("p", seq)
		e.Id = uuid.Must(uuid.NewV7()).String()
		a.send(e)
		ids = append(ids, e.GetId())
	}
	put(1)
	a.awaitReleased(1)

	standby := primary.OwnStandby(t)
	await(t, func() (bool, string) { return count(t, standby, "health_events") == 1, "the standby does not follow" })
	if err := standby.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, func() (bool, string) {
		return count(t, primary, "pg_stat_replication") == 0, "the standby is not detached"
	})
	put(2)
	put(3)
	a.awaitReleased(3)
	if err := primary.Slay(); err != nil {
		t.Fatal(err)
	}
	gateway.kill()
	connector.kill()
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := count(t, standby, "health_events"); n != 1 {
		t.Fatalf("the standby has %d records; the test means nothing unless some are lost", n)
	}
	at.Store(standby)
	a.gateway(0)
	a.connector()
	put(4)
	var got []string
	for _, r := range awaitStored(t, a.records(), len(ids)) {
		got = append(got, r.ID)
	}
	if strings.Join(got, " ") != strings.Join(ids, " ") {
		t.Errorf("stored are %v, want %v", got, ids)
	}
}

// awaitReleased waits until the spool has released so many events: they are
// acknowledged.
func (a *avenue) awaitReleased(n int) {
	a.t.Helper()
	await(a.t, func() (bool, string) {
		text, err := os.ReadFile(filepath.Join(a.dir, "spool", "released"))
		return strings.TrimLeft(strings.TrimSpace(string(text)), "0") == fmt.Sprint(n), fmt.Sprintf("released are %s of %d, %v", text, n, err)
	})
}

// count asks a server how many rows a table has.
func count(t *testing.T, s *pgtest.Server, table string) (n int) {
	t.Helper()
	conn, err := s.Connect(t.Context(), "postgres")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
