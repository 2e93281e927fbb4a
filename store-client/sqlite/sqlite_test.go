package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/internal/sqlstore"
	"github.com/nvidia/nvsentinel/store-client/sqlite"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

func TestRelativePathIsRefused(t *testing.T) {
	for _, path := range []string{"nvsentinel.db", ":memory:", ""} {
		if _, err := sqlite.Open(t.Context(), path, sqlstore.Config{Clock: clock.RealClock{}}); !errors.Is(err, provider.ErrUnusable) {
			t.Errorf("%q: %v, want ErrUnusable", path, err)
		}
	}
}

// Characters that mean something in an address are only part of the path.
func TestOddPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b?c%20#d")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "x?mode=memory.db")
	storetest.MustAppend(t, storetest.Open(t, "sqlite://"+path, storeopen.Options{}), storetest.Record("n"))
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the file is elsewhere: %v", err)
	}
}

func TestMissingFolder(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := storeopen.Open(ctx, "sqlite://"+filepath.Join(t.TempDir(), "absent", "x.db"), storeopen.Options{SingleHost: true})
	if err == nil {
		t.Error("a database in an absent folder was opened")
	}
}

// A reader makes no file, and reads one that no service has open.
func TestReaderAlone(t *testing.T) {
	dsn := storetest.SQLiteDSN(t)
	path := strings.TrimPrefix(dsn, "sqlite://")
	if r, err := storeopen.OpenReader(t.Context(), dsn, storeopen.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("reading an absent file: %v, %v", r, err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file was made: %v", err)
	}
	s, err := storeopen.Open(t.Context(), dsn, storeopen.Options{SingleHost: true})
	if err != nil {
		t.Fatal(err)
	}
	r := storetest.Record("n")
	storetest.MustAppend(t, s, r)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := storetest.Reader(t, dsn).Get(t.Context(), r.ID); err != nil || got.ID != r.ID {
		t.Errorf("read %s, %v; want %s", got.ID, err, r.ID)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file changed: %v", err)
	}
}

// TestSwappedFile: a backup takes the file's place while a service has it open. What
// is acknowledged from then on is in the new file, and feeds read that; a file that
// is removed is reported as missing, not created again.
func TestSwappedFile(t *testing.T) {
	dsn := storetest.SQLiteDSN(t)
	path := strings.TrimPrefix(dsn, "sqlite://")
	s := storetest.Open(t, dsn, storeopen.Options{})
	feed, err := s.Feed(t.Context(), "c", record.AllHealthEventInserts())
	if err != nil {
		t.Fatal(err)
	}
	defer feed.Close()
	kept, lost, after := storetest.Record("n"), storetest.Record("n"), storetest.Record("n")
	storetest.MustAppend(t, s, kept)
	if _, err := raw(t, dsn).ExecContext(t.Context(), "VACUUM INTO $1", path+".backup"); err != nil {
		t.Fatal(err)
	}
	storetest.MustAppend(t, s, lost)
	storetest.Receive(t, feed, 2)
	for _, err := range []error{os.Rename(path+".backup", path), os.Remove(path + "-wal"), os.Remove(path + "-shm")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	storetest.MustAppend(t, s, lost, after)
	for _, r := range []record.Record{kept, lost, after} {
		if got, err := storetest.Reader(t, dsn).Get(t.Context(), r.ID); err != nil {
			t.Errorf("the file that is there now: %q, %v", got.ID, err)
		}
	}
	fed := map[string]bool{}
	for !fed[lost.ID] || !fed[after.ID] {
		fed[storetest.Receive(t, feed, 1)[0].ID] = true
	}
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), []record.Record{storetest.Record("n")}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("appending to a file that is gone: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file was made anew: %v", err)
	}
}

// The services' queries use the indexes made for them.
func TestIndexes(t *testing.T) {
	dsn := storetest.SQLiteDSN(t)
	storetest.Open(t, dsn, storeopen.Options{})
	db := raw(t, dsn)
	for index, q := range sqlstore.NamedQueries(sqlite.QueryHead, int64(0), nil) {
		rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+q.SQL, q.Args...)
		if err != nil {
			t.Fatalf("%s: %v", q.SQL, err)
		}
		var plan []string
		for rows.Next() {
			var id, parent, unused int
			var step string
			if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
				t.Fatal(err)
			}
			plan = append(plan, step)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(plan, "\n"); !strings.Contains(text, index+" ") {
			t.Errorf("%s is not used by\n%s\n%s", index, q.SQL, text)
		}
	}
}

// A file of an earlier version gets the new tables when it is opened, and keeps its
// records.
func TestMaintenancesOfAnEarlierVersion(t *testing.T) {
	dsn := storetest.SQLiteDSN(t)
	r := storetest.Record("n")
	storetest.MustAppend(t, storetest.Open(t, dsn, storeopen.Options{}), r)
	_, err := raw(t, dsn).ExecContext(t.Context(), "DROP TABLE maintenance_events; DROP TABLE maintenance_providers; DELETE FROM store_schema WHERE version = 2")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := storetest.Maintenances(t, dsn).Unfinished(t.Context(), "aws"); len(got) != 0 || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	storetest.MustGet(t, storetest.Open(t, dsn, storeopen.Options{}), r.ID)
}
