package postgresql_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/nvidia/nvsentinel/data-models/maintenance"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// TestMaintenanceAccount: the account of maintenance_role.sql keeps what providers
// announce, and can neither read nor change a record, nor make anything.
func TestMaintenanceAccount(t *testing.T) {
	e := newEstate(t)
	account := e.name + "_maintenance"
	dsn := as(t, e.owner, account)
	storetest.MustAppend(t, e.services, storetest.Record("n"))
	script, err := os.ReadFile("roles/maintenance_role.sql")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.SplitAfter(strings.ReplaceAll(string(script), "nvsentinel_maintenance", account), "END $$;\n")
	exec(t, e.owner, parts[0])
	testkit.Until(t, 2*time.Minute, func() bool { // a second may be too short for the question
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := storeopen.OpenMaintenances(short, dsn, storeopen.Options{})
		if err == nil {
			t.Fatal("maintenances were opened without a right to them")
		}
		return strings.Contains(err.Error(), "maintenance_role.sql")
	})
	exec(t, e.owner, strings.Join(parts, "")) // it can be run again

	m := storetest.Maintenances(t, dsn)
	saved := storetest.Maintenance("aws", "m")
	if err := m.SaveMaintenances(t.Context(), store.MaintenanceUpdate{CSP: "aws", Events: []maintenance.Event{saved}, Provider: &maintenance.Provider{CSP: "aws"}}); err != nil {
		t.Fatal(err)
	}
	if got, err := m.Unfinished(t.Context(), "aws"); len(got) != 1 || err != nil {
		t.Errorf("%d maintenances, %v", len(got), err)
	}
	conn := login(t, dsn)
	const denied = "42501"
	for _, statement := range []string{
		"SELECT FROM health_events", "UPDATE health_events SET revision = 7", "DELETE FROM health_events",
		"SELECT append_health_events('{}', '{}')", "SELECT FROM dead_letters", "INSERT INTO feed_positions VALUES ('x', '', NULL, now())",
		"SELECT FROM store_home", "TRUNCATE maintenance_events", "ALTER TABLE maintenance_events ADD x INT", "DROP TABLE maintenance_events",
		"CREATE TABLE x (y INT)", "CREATE TEMPORARY TABLE x (y INT)", "SELECT nextval('health_event_places')",
	} {
		_, err := conn.Exec(t.Context(), statement)
		if refused, ok := errors.AsType[*pgconn.PgError](err); !ok || refused.Code != denied && !strings.Contains(refused.Message, "must be owner") {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

// TestMaintenancesOfAnEarlierVersion: a database that services of an earlier version
// made gets the new tables when the next service opens it, and keeps its records.
func TestMaintenancesOfAnEarlierVersion(t *testing.T) {
	_, dsn := pgtest.Database(t)
	r := storetest.Record("n")
	storetest.MustAppend(t, storetest.Open(t, dsn, storeopen.Options{}), r)
	exec(t, dsn, "DROP TABLE maintenance_events, maintenance_providers; DELETE FROM store_schema WHERE version = 3")
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := storeopen.OpenMaintenances(short, dsn, storeopen.Options{}); err == nil {
		t.Error("maintenances were opened before a service has made their tables")
	}
	storetest.MustGet(t, storetest.Open(t, dsn, storeopen.Options{}), r.ID)
	if got, err := storetest.Maintenances(t, dsn).Unfinished(t.Context(), "aws"); len(got) != 0 || err != nil {
		t.Errorf("%v, %v", got, err)
	}

	// A table of somebody else under that name is left as it is, and named.
	exec(t, dsn, `DROP TABLE maintenance_events, maintenance_providers; DELETE FROM store_schema WHERE version = 3;
CREATE TABLE maintenance_events (id INT, document JSONB)`)
	if _, err := storeopen.Open(t.Context(), dsn, storeopen.Options{}); err == nil || !strings.Contains(err.Error(), "the table maintenance_events") {
		t.Errorf("somebody else's table: %v", err)
	}
}
