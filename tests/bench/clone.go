package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	_ "modernc.org/sqlite"             // the driver sqlite
)

// database makes long histories quickly: a record that the store itself wrote
// is copied by the database, in one statement, with the indexes rebuilt after.
type database struct {
	*sql.DB
	address string
	// indexes lists names and definitions of the indexes that are no constraint.
	indexes string
	// columns lists the columns of the table in their order.
	columns string
	// numbers is a FROM item g with the numbers 1 to $2.
	numbers string
	// own are the values of a copy's columns that are not the record's.
	own map[string]string
	// after is run behind the copies.
	after []string
}

func openPostgreSQL(ctx context.Context, dsn string) (cloner, error) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return nil, err
	}
	return &database{
		DB: db, address: dsn,
		indexes: "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'health_events' AND indexname NOT LIKE '%pkey'",
		columns: "SELECT column_name FROM information_schema.columns WHERE table_name = 'health_events' ORDER BY ordinal_position",
		numbers: "(SELECT i, 'gpu-' || i % $3::int AS node, gen_random_uuid()::text AS id FROM generate_series(1, $2::int) AS i) AS g",
		own: map[string]string{
			"id": "g.id", "append_seq": "nextval('health_event_places')", "node": "g.node",
			"doc": "t.doc || jsonb_build_object('id', g.id, 'healthevent', (t.doc->'healthevent') || jsonb_build_object('id', g.id, 'nodename', g.node))",
		},
		after: []string{"VACUUM ANALYZE health_events", "CHECKPOINT"},
	}, db.PingContext(ctx)
}

func openSQLite(path string) (cloner, error) {
	address := (&url.URL{Scheme: "file", Path: path, RawQuery: "_pragma=busy_timeout(60000)"}).String()
	db, err := sql.Open("sqlite", address)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return &database{
		DB: db, address: "sqlite://" + path,
		indexes: "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'health_events' AND sql IS NOT NULL",
		columns: "SELECT name FROM pragma_table_info('health_events') ORDER BY cid",
		numbers: `(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $2)
SELECT i, 'gpu-' || (i % $3) AS node, lower(hex(randomblob(16))) AS id FROM n) AS g`,
		own: map[string]string{
			"id": "g.id", "append_seq": "(SELECT seq FROM store_counter) + g.i", "node": "g.node",
			"doc": "json_set(t.doc, '$.id', g.id, '$.healthevent.id', g.id, '$.healthevent.nodename', g.node)",
		},
		after: []string{
			"UPDATE store_counter SET seq = (SELECT max(append_seq) FROM health_events)", "ANALYZE", "PRAGMA wal_checkpoint(TRUNCATE)",
		},
	}, nil
}

func (d *database) dsn() string { return d.address }

func (d *database) close(context.Context) error { return d.Close() }

// clone copies the record id n times.
func (d *database) clone(ctx context.Context, id string, n int) error {
	indexes, err := d.pairs(ctx, d.indexes)
	if err != nil {
		return err
	}
	columns, err := d.pairs(ctx, strings.Replace(d.columns, " FROM", ", '' FROM", 1))
	if err != nil {
		return err
	}
	var names, values []string
	for _, c := range columns {
		names = append(names, c[0])
		value := d.own[c[0]]
		if value == "" {
			value = "t." + c[0]
		}
		values = append(values, value)
	}
	for _, x := range indexes {
		if _, err := d.ExecContext(ctx, "DROP INDEX "+x[0]); err != nil {
			return err
		}
	}
	_, err = d.ExecContext(ctx, fmt.Sprintf("INSERT INTO health_events (%s) SELECT %s FROM health_events AS t, %s WHERE t.id = $1",
		strings.Join(names, ", "), strings.Join(values, ", "), d.numbers), id, n, historyNodes)
	if err != nil {
		return fmt.Errorf("copying: %w", err)
	}
	for _, x := range indexes {
		if _, err := d.ExecContext(ctx, x[1]); err != nil {
			return err
		}
	}
	for _, statement := range d.after {
		if _, err := d.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// pairs reads rows of two texts.
func (d *database) pairs(ctx context.Context, query string) (out [][2]string, err error) {
	rows, err := d.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var p [2]string
		if err := rows.Scan(&p[0], &p[1]); err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, rows.Err()
}
