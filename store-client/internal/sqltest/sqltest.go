// Package sqltest injects the failures of the conformance suite into SQL stores.
package sqltest

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// Damage harms a consumer's stored position.
func Damage(t testing.TB, db *sql.DB, consumer string, d storetest.Damage) {
	t.Helper()
	position := d.Position
	switch position {
	case storetest.Elsewhere:
		position = storetest.EditPosition(t, text(t, db, consumer), "s", "another server")
	case storetest.Beyond:
		position = storetest.EditPosition(t, text(t, db, consumer), "t", int64(1)<<50)
	}
	exec(t, db, "UPDATE feed_positions SET position = $1 WHERE consumer = $2", position, consumer)
	if d.Mark {
		exec(t, db, "UPDATE feed_positions SET mark = NULL WHERE consumer = $1", consumer)
	}
}

// text is the stored position.
func text(t testing.TB, db *sql.DB, consumer string) string {
	t.Helper()
	var position string
	if err := db.QueryRowContext(t.Context(), "SELECT position FROM feed_positions WHERE consumer = $1", consumer).Scan(&position); err != nil {
		t.Fatalf("reading the position of %s: %v", consumer, err)
	}
	return position
}

// Poison replaces a record's document by one of another shape.
func Poison(t testing.TB, db *sql.DB, id string) {
	t.Helper()
	exec(t, db, "UPDATE health_events SET doc = $1 WHERE id = $2", `{"revision": "not a number"}`, id)
}

// PoisonMaintenance replaces a maintenance's document by one of another shape.
func PoisonMaintenance(t testing.TB, db *sql.DB, csp, id string) {
	t.Helper()
	exec(t, db, "UPDATE maintenance_events SET doc = $1 WHERE csp = $2 AND event_id = $3", `{"revision": "not a number"}`, csp, id)
}

// Edit changes a document; see storetest.Backend.
func Edit(t testing.TB, db *sql.DB, id string, change func(doc []byte) []byte) {
	t.Helper()
	for _, from := range []string{
		"health_events WHERE id = $1", "maintenance_events WHERE csp || '/' || event_id = $1", "maintenance_providers WHERE csp = $1",
	} {
		var doc []byte
		err := db.QueryRowContext(t.Context(), "SELECT doc FROM "+from, id).Scan(&doc)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			t.Fatalf("reading the document %s: %v", id, err)
		}
		if doc = change(doc); doc != nil {
			table, where, _ := strings.Cut(from, " ")
			exec(t, db, "UPDATE "+table+" SET doc = $2 "+where, id, string(doc))
		}
		return
	}
	t.Fatalf("there is no document %s", id)
}

// Schema has the database be of a newer schema, or of this program's.
func Schema(t testing.TB, db *sql.DB, newer bool) {
	t.Helper()
	if newer {
		exec(t, db, "INSERT INTO store_schema (version) VALUES (1000)")
	} else {
		exec(t, db, "DELETE FROM store_schema WHERE version = 1000")
	}
}

// exec changes exactly one row.
func exec(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	res, err := db.ExecContext(t.Context(), query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	if n, err := res.RowsAffected(); n != 1 || err != nil {
		t.Fatalf("%s: %d rows, %v; want 1", query, n, err)
	}
}
