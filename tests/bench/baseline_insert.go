package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// insertBaseline is PostgreSQL's rate of batch inserts: the rows that the suite
// stored go once more, over one connection, into an empty table with the same
// indexes, one durable multi-row INSERT per batch.
func insertBaseline(ctx context.Context, dsn string, batch int) (n int, took time.Duration, err error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	if _, err := conn.Exec(ctx, "CREATE TABLE floor_events (LIKE health_events INCLUDING ALL)"); err != nil {
		return 0, 0, err
	}
	found, err := conn.Query(ctx, "SELECT * FROM health_events ORDER BY append_seq")
	if err != nil {
		return 0, 0, err
	}
	all, err := pgx.CollectRows(found, func(r pgx.CollectableRow) ([]any, error) {
		values, err := r.Values()
		if err == nil { // doc, the last column, as the text it was sent as
			doc, failed := json.Marshal(values[len(values)-1])
			values[len(values)-1], err = string(doc), failed
		}
		return values, err
	})
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	for rows := range slices.Chunk(all, batch) {
		var tuples []string
		for i, row := range rows {
			var marks []string
			for j := range row {
				marks = append(marks, fmt.Sprintf("$%d", i*len(row)+j+1))
			}
			tuples = append(tuples, "("+strings.Join(marks, ",")+")")
		}
		sql := "INSERT INTO floor_events VALUES " + strings.Join(tuples, ",")
		if _, err := conn.Exec(ctx, sql, slices.Concat(rows...)...); err != nil {
			return 0, 0, err
		}
	}
	return len(all), time.Since(began), nil
}
