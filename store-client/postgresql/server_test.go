package postgresql_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/internal/sqlstore"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/postgresql"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

func all() record.Selector { return record.AllHealthEventInserts() }

func feedOf(t *testing.T, s store.Store, consumer string, sel record.Selector) store.Feed {
	t.Helper()
	f, err := s.Feed(t.Context(), consumer, sel)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// A dump restored on another server brings transaction numbers that lie in
// that server's future and positions of a server that is no more.
func TestRestoredElsewhere(t *testing.T) {
	_, dsn := pgtest.Database(t)
	s := storetest.Open(t, dsn, storeopen.Options{})
	a, b, c := storetest.Record("n"), storetest.Record("n"), storetest.Record("n")
	storetest.MustAppend(t, s, a, b)
	storetest.Receive(t, feedOf(t, s, "c", all()), 2)
	storetest.MustAppend(t, s, c)
	db := raw(t, dsn)
	for _, step := range []string{
		"UPDATE health_events SET insert_tx = insert_tx + 1000000000000, change_tx = change_tx + 1000000000000",
		"UPDATE store_home SET home = 'another/1'",
		`UPDATE feed_positions SET position = replace(position, '"s":"', '"s":"another/1/')`,
	} {
		if _, err := db.ExecContext(t.Context(), step); err != nil {
			t.Fatal(err)
		}
	}
	again := storetest.Open(t, dsn, storeopen.Options{})
	d := storetest.Record("n")
	storetest.MustAppend(t, again, d)
	var got []string
	for _, r := range storetest.Receive(t, feedOf(t, again, "c", all()), 4) {
		got = append(got, r.ID)
	}
	if diff := cmp.Diff([]string{a.ID, b.ID, c.ID, d.ID}, got); diff != "" {
		t.Errorf("fed after the restore (-want +got):\n%s", diff)
	}
}

// A table that is emptied and filled again under a running feed has other rows,
// with numbers that the feed has passed: what is not finished comes again.
func TestTableRestoredUnderAFeed(t *testing.T) {
	for name, steps := range map[string][]string{
		"emptied":  {"CREATE TABLE dump AS SELECT * FROM health_events", "TRUNCATE health_events", "INSERT INTO health_events SELECT * FROM dump"},
		"replaced": {"CREATE TABLE dump (LIKE health_events INCLUDING ALL)", "INSERT INTO dump SELECT * FROM health_events", "DROP TABLE health_events", "ALTER TABLE dump RENAME TO health_events"},
	} {
		_, dsn := pgtest.Database(t)
		s := storetest.Open(t, dsn, storeopen.Options{})
		f := feedOf(t, s, "c", all())
		r := storetest.Record("n")
		storetest.MustAppend(t, s, r)
		storetest.Receive(t, f, 1)
		db := raw(t, dsn)
		for _, step := range steps {
			if _, err := db.ExecContext(t.Context(), step); err != nil {
				t.Fatal(err)
			}
		}
		if got := storetest.Receive(t, f, 1)[0]; got.ID != r.ID {
			t.Errorf("%s: fed %s, want the restored %s", name, got.ID, r.ID)
		}
	}
}

// A feed that runs while another server takes the address over reads again
// there; positions of the old server are not written over the new one's.
func TestServerReplaced(t *testing.T) {
	name, dsn := pgtest.Database(t)
	s := storetest.Open(t, dsn, storeopen.Options{})
	f := feedOf(t, s, "c", all())
	a, b, c := storetest.Record("n"), storetest.Record("n"), storetest.Record("n")
	storetest.MustAppend(t, s, a, b)
	storetest.Receive(t, f, 1)
	_, late, err := f.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// A copy of the database counts as another server.
	for _, step := range []string{
		"ALTER DATABASE " + name + " WITH ALLOW_CONNECTIONS false",
		"SELECT pg_terminate_backend(pid, 120000) FROM pg_stat_activity WHERE datname = '" + name + "'",
		"ALTER DATABASE " + name + " RENAME TO " + name + "_replaced",
		"CREATE DATABASE " + name + " TEMPLATE " + name + "_replaced",
	} {
		execAlone(t, step)
	}
	storetest.MustAppend(t, storetest.Open(t, dsn, storeopen.Options{}), c)
	var got []string
	for len(got) < 3 {
		r, position, err := f.Next(t.Context())
		if err != nil {
			continue // the connections of the old server break one after the other
		}
		got = append(got, r.ID)
		for _, p := range []string{position, late} {
			if err := commitUntil(t.Context(), f, p); err != nil {
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff([]string{a.ID, b.ID, c.ID}, got); diff != "" {
		t.Errorf("fed by the other server (-want +got):\n%s", diff)
	}
	last := storetest.Record("n")
	again := storetest.Open(t, dsn, storeopen.Options{})
	storetest.MustAppend(t, again, last)
	if r := storetest.Receive(t, feedOf(t, again, "c", all()), 1)[0]; r.ID != last.ID {
		t.Errorf("resumed at %s, want %s", r.ID, last.ID)
	}
}

// execAlone executes a statement that has to have a database for itself: who
// tries to connect to it, and is not let in, counts for a moment too.
func execAlone(t *testing.T, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		err := pgtest.Shared(t).Exec(ctx, "postgres", statement)
		if err == nil {
			return
		}
		if ctx.Err() != nil || !strings.Contains(err.Error(), "being accessed by other users") {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// A server that dies and comes back loses nothing acknowledged, and open
// stores and feeds go on.
func TestServerKilled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	server := pgtest.Own(t, pgtest.Options{Durable: true})
	s := storetest.Open(t, server.DSN("postgres"), storeopen.Options{})
	f := feedOf(t, s, "c", all())
	a, b := storetest.Record("n"), storetest.Record("n")
	storetest.MustAppend(t, s, a)
	storetest.Receive(t, f, 1)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(ctx, a.ID); err == nil || errors.Is(err, store.ErrNotFound) {
		t.Errorf("reading without a server: %v, want an error that is not absence", err)
	}
	if _, _, err := f.Next(ctx); err == nil {
		t.Error("the feed reads without a server")
	}
	if err := server.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	for {
		results, err := s.Append(ctx, []record.Record{a, b})
		if err == nil {
			if diff := cmp.Diff([]store.AppendResult{store.Duplicate, store.Appended}, results); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("the store does not come back: %v", err)
		}
	}
	if got := storetest.Receive(t, f, 1)[0]; got.ID != b.ID {
		t.Errorf("the feed goes on with %s, want %s", got.ID, b.ID)
	}
}

// A connection that breaks while a feed waits on it is replaced.
func TestFeedOverCutLine(t *testing.T) {
	_, dsn := pgtest.Database(t)
	p := line(t)
	s := storetest.Open(t, through(t, p, dsn), storeopen.Options{})
	writer := storetest.Open(t, dsn, storeopen.Options{})
	f := feedOf(t, s, "c", all())
	for i := range 5 {
		p.Cut()
		r := storetest.Record("n")
		storetest.MustAppend(t, writer, r)
		for {
			got, position, err := f.Next(t.Context())
			if err != nil && t.Context().Err() == nil {
				continue
			}
			if err == nil {
				err = commitUntil(t.Context(), f, position)
			}
			if err != nil || got.ID != r.ID {
				t.Fatalf("cut %d: %s, %v; want %s", i, got.ID, err, r.ID)
			}
			break
		}
	}
}

// commitUntil repeats a commit that a cut connection broke.
func commitUntil(ctx context.Context, f store.Feed, position string) error {
	for {
		err := f.Commit(ctx, position)
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

func TestUnsafeServerIsRefused(t *testing.T) {
	_, dsn := pgtest.Database(t)
	bare := strings.Replace(dsn, "&nvsentinel_allow_unsafe=true", "", 1)
	for address, want := range map[string]string{
		bare:                                    "fsync=off",
		bare + "&nvsentinel_allow_unsafe=maybe": "neither true nor false",
		bare + "&nvsentinel_allow_unsafe=false": "fsync=off",
	} {
		s, err := storeopen.Open(t.Context(), address, storeopen.Options{})
		if !errors.Is(err, provider.ErrUnusable) || !strings.Contains(err.Error(), want) || s != nil {
			t.Errorf("%s: %v, want an error with %q", address, err, want)
		}
	}
}

func TestCommitsAreSynchronous(t *testing.T) {
	name, dsn := pgtest.Database(t)
	if err := pgtest.Shared(t).Exec(t.Context(), name, "ALTER DATABASE "+name+" SET synchronous_commit = off"); err != nil {
		t.Fatal(err)
	}
	// The connection's own setting is stronger than the database's, and than the address's.
	for _, address := range []string{dsn, dsn + "&synchronous_commit=off"} {
		storetest.MustAppend(t, storetest.Open(t, address, storeopen.Options{}), storetest.Record("n"))
	}
}

func TestPermanentErrors(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	server := pgtest.Shared(t)
	name, dsn := pgtest.Database(t)
	storetest.Open(t, dsn, storeopen.Options{})
	if err := server.Exec(ctx, name, "INSERT INTO store_schema (version) VALUES (1000)"); err != nil {
		t.Fatal(err)
	}
	if err := server.Exec(ctx, "postgres", "CREATE DATABASE "+name+"_latin ENCODING 'LATIN1' TEMPLATE template0"); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{dsn: "version 1000", server.DSN(name + "_latin"): "LATIN1"} {
		if _, err := storeopen.Open(ctx, address, storeopen.Options{}); !errors.Is(err, provider.ErrUnusable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}

// A daemon may start before its database.
func TestOpenWaits(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	server := pgtest.Shared(t)
	name, _ := pgtest.Database(t)
	name += "_late"
	short, stop := context.WithTimeout(ctx, 500*time.Millisecond)
	defer stop()
	if _, err := storeopen.Open(short, server.DSN(name), storeopen.Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("opening an absent database: %v, want to have waited", err)
	}
	opened := make(chan error, 1)
	go func() {
		s, err := storeopen.Open(ctx, server.DSN(name), storeopen.Options{})
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	if _, err := server.CreateDatabase(ctx, name); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Errorf("opening the database that came late: %v", err)
	}
}

func TestPasswordsStayOutOfErrors(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	const secret = "s3cret"
	for _, dsn := range []string{
		"postgres://user:" + secret + "@127.0.0.1:1/db",
		"postgres://user:" + secret + "@127.0.0.1:port/db",
		"postgres://user:" + secret + "%zz@127.0.0.1/db",
		"postgres://user@127.0.0.1:1/db?password=" + secret,
		"postgres://user@127.0.0.1:1/db?password=" + secret + "&sslmode=nonsense",
		"postgers://user:" + secret + "@127.0.0.1/db",
		"user:" + secret + "@127.0.0.1/db",
		"postgres://user:" + secret + "@127.0.0.1:1/db?nvsentinel_allow_unsafe=maybe",
	} {
		_, err := storeopen.Open(ctx, dsn, storeopen.Options{})
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("the error of %q: %v", dsn, err)
		}
		_, err = postgresql.Open(ctx, dsn, sqlstore.Config{})
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("the provider's error of %q: %v", dsn, err)
		}
	}
}

// Services need no more than their own tables.
func TestPlainRole(t *testing.T) {
	name, dsn := pgtest.Database(t)
	server := pgtest.Shared(t)
	err := server.Exec(t.Context(), name, "CREATE ROLE "+name+" LOGIN; GRANT CREATE ON SCHEMA public TO "+name)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("user", name)
	u.RawQuery = q.Encode()
	s := storetest.Open(t, u.String(), storeopen.Options{})
	r := storetest.Record("n")
	storetest.MustAppend(t, s, r)
	if got := storetest.Receive(t, feedOf(t, s, "c", all()), 1); got[0].ID != r.ID {
		t.Errorf("fed %s, want %s", got[0].ID, r.ID)
	}
}

// TestDatabaseRecreated: the database is dropped and made again while services have it
// open. Nothing is acknowledged while its tables are missing; when a service that
// starts has made them, the others go on, with another server's name.
func TestDatabaseRecreated(t *testing.T) {
	name, dsn := pgtest.Database(t)
	s := storetest.Open(t, dsn, storeopen.Options{})
	known, _ := s.(store.Identified)
	f := feedOf(t, s, "c", all())
	a, b := storetest.Record("n"), storetest.Record("n")
	storetest.MustAppend(t, s, a)
	storetest.Receive(t, f, 1)
	before, err := known.Server(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{"DROP DATABASE " + name + " WITH (FORCE)", "CREATE DATABASE " + name} {
		if err := pgtest.Shared(t).Exec(t.Context(), "postgres", statement); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 { // connections that were cut, then tables that are missing
		if results, err := s.Append(t.Context(), []record.Record{b}); err == nil {
			t.Errorf("without tables it answers %v", results)
		}
	}
	storetest.Open(t, dsn, storeopen.Options{})
	storetest.MustAppend(t, s, a, b)
	if now, _, err := known.AppendTo(t.Context(), before, nil); !errors.Is(err, store.ErrMoved) {
		t.Errorf("the new database is taken for the old one: %v, %v", now, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	fed := map[string]bool{}
	for !fed[a.ID] || !fed[b.ID] {
		r, _, err := f.Next(ctx)
		if ctx.Err() != nil {
			t.Fatalf("fed only %v: %v", fed, err)
		}
		fed[r.ID] = err == nil
	}
}
