package postgresql_test

import (
	"fmt"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// appended stores n records and returns a change of each: its quarantine verdict.
func appended(t testing.TB, s store.Store, n int) []store.Change {
	t.Helper()
	var records []record.Record
	var changes []store.Change
	for range n {
		r := storetest.Record("n")
		records = append(records, r)
		changes = append(changes, store.Change{ID: r.ID, Status: record.Status{QuarantineVerdict: &record.Verdict{Reason: record.NoRuleMatched}}})
	}
	storetest.MustAppend(t, s, records...)
	return changes
}

// A large batch takes a number of statements that the network can bear: 4,000
// records at 2 ms each took longer than a lease lives.
func TestABatchOfUpdatesIsAFewStatements(t *testing.T) {
	const many = 1200
	_, dsn := pgtest.Database(t)
	s := storetest.Open(t, dsn, storeopen.Options{})
	changes := appended(t, s, many)
	db := raw(t, dsn)
	for _, step := range []string{
		"CREATE TABLE statements (n int)",
		"CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO statements VALUES (1); RETURN NULL; END'",
		"CREATE TRIGGER note AFTER UPDATE ON health_events FOR EACH STATEMENT EXECUTE FUNCTION note()",
	} {
		if _, err := db.ExecContext(t.Context(), step); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Update(t.Context(), record.FaultQuarantine, changes); err != nil {
		t.Fatal(err)
	}
	var statements, evaluated int
	err := db.QueryRowContext(t.Context(), `SELECT (SELECT count(*) FROM statements),
(SELECT count(*) FROM health_events WHERE verdict = 'NoRuleMatched' AND revision = 1 AND doc->>'revision' = '1')`).Scan(&statements, &evaluated)
	if err != nil || evaluated != many || statements > 3 {
		t.Errorf("%d of %d records were judged in %d statements, %v; want at most 3", evaluated, many, statements, err)
	}
}

func BenchmarkUpdate(b *testing.B) {
	for _, size := range []int{1, 20, 500} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			_, dsn := pgtest.Database(b)
			s := storetest.Open(b, dsn, storeopen.Options{})
			changes := appended(b, s, size)
			for b.Loop() {
				if _, err := s.Update(b.Context(), record.FaultQuarantine, changes); err != nil {
					b.Fatal(err)
				}
				for i := range changes {
					changes[i].Revision++
				}
			}
		})
	}
}
