package postgresql_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/store-client/internal/sqlstore"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/postgresql"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// The services' queries use the indexes made for them.
func TestIndexes(t *testing.T) {
	_, dsn := pgtest.Database(t)
	storetest.Open(t, dsn, storeopen.Options{})
	db := raw(t, dsn)
	ctx := t.Context()
	conn, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// An empty table is always scanned; the question is which index could be used.
	if _, err := conn.ExecContext(ctx, "SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan"); err != nil {
		t.Fatal(err)
	}
	for index, q := range sqlstore.NamedQueries(postgresql.QueryHead, time.Now(), &sqlstore.Snapshot{Next: 990, Running: []int64{970, 980}}) {
		rows, err := conn.QueryContext(ctx, "EXPLAIN "+q.SQL, q.Args...)
		if err != nil {
			t.Fatalf("%s: %v", q.SQL, err)
		}
		var plan []string
		for rows.Next() {
			var step string
			if err := rows.Scan(&step); err != nil {
				t.Fatal(err)
			}
			plan = append(plan, step)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(plan, "\n"); !strings.Contains(text, index+" ") {
			t.Errorf("%s is not used by\n%s\n%s", index, q.SQL, fmt.Sprint(text))
		}
	}
}
