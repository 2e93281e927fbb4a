package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/sqltest"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Backend{
		Name: "sqlite",
		New:  storetest.SQLiteDSN,
		Interrupt: func(t testing.TB, dsn string) (store.Store, func(bool)) {
			s := &broken{Store: storetest.Open(t, dsn, storeopen.Options{}), maintenances: storetest.Maintenances(t, dsn)}
			return s, func(before bool) { s.armed, s.before = true, before }
		},
		Late: late,
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

// broken loses one write or its answer. A file has no connection to cut: what
// a killed process leaves behind is another case of the suite.
type broken struct {
	store.Store
	maintenances  store.Maintenances
	armed, before bool
}

var errBroken = errors.New("broken")

func (b *broken) Append(ctx context.Context, records []record.Record) (results []store.AppendResult, err error) {
	err = b.write(ctx, func(ctx context.Context) error {
		results, err = b.Store.Append(ctx, records)
		return err
	})
	return results, err
}

func (b *broken) Update(ctx context.Context, w record.Writer, changes []store.Change) (after []record.Record, err error) {
	err = b.write(ctx, func(ctx context.Context) error {
		after, err = b.Store.Update(ctx, w, changes)
		return err
	})
	return after, err
}

func (b *broken) SaveMaintenances(ctx context.Context, update store.MaintenanceUpdate) error {
	return b.write(ctx, func(ctx context.Context) error { return b.maintenances.SaveMaintenances(ctx, update) })
}

func (b *broken) write(ctx context.Context, f func(ctx context.Context) error) error {
	if !b.armed {
		return f(ctx)
	}
	b.armed = false
	if b.before {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return f(ctx)
	}
	return errors.Join(errBroken, f(ctx))
}

// late holds the file's only write transaction while r waits for it.
func late(t testing.TB, dsn string, r record.Record) func() {
	s := storetest.Open(t, dsn, storeopen.Options{})
	tx, err := raw(t, dsn).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var writer sync.WaitGroup
	writer.Go(func() { storetest.MustAppend(t, s, r) })
	return func() {
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
		writer.Wait()
	}
}
