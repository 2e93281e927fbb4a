package postgresql_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// TestADatabaseOfTheEarlierOneIsRefused: services and readers refuse it, name the ways out,
// and leave it as it is. Once its table is renamed, it does not block them.
func TestADatabaseOfTheEarlierOneIsRefused(t *testing.T) {
	_, dsn := pgtest.Database(t)
	db := raw(t, dsn)
	run := func(statement string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	run(`CREATE TABLE health_events (id UUID PRIMARY KEY DEFAULT gen_random_uuid(), node_name TEXT NOT NULL, event_type TEXT, severity TEXT,
recommended_action TEXT, node_quarantined TEXT, user_pods_eviction_status TEXT, document JSONB, created_at TIMESTAMPTZ DEFAULT now())`)
	run(`CREATE TABLE resume_tokens (client_name TEXT PRIMARY KEY, resume_token JSONB)`)
	run(`INSERT INTO health_events (node_name, document) VALUES ('n1', '{"healthevent": {"nodeName": "n1"}}')`)
	open := func() error {
		s, err := storeopen.Open(t.Context(), dsn, storeopen.Options{})
		if err == nil {
			err = s.Close()
		}
		return err
	}
	read := func() error {
		s, err := storeopen.OpenReader(t.Context(), dsn, storeopen.Options{})
		if err == nil {
			err = s.Close()
		}
		return err
	}
	for _, err := range []error{open(), read()} {
		if !errors.Is(err, provider.ErrUnusable) || !strings.Contains(err.Error(), "a separate database") || !strings.Contains(err.Error(), "rename the old one") {
			t.Errorf("a database of the earlier one: %v, want both ways out", err)
		}
	}
	var tables int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").Scan(&tables); err != nil || tables != 2 {
		t.Errorf("the refused database has %d tables (%v), want its 2", tables, err)
	}
	run("ALTER TABLE health_events RENAME TO earlier_health_events")
	if err := open(); err != nil {
		t.Errorf("put aside: %v", err)
	}
}
