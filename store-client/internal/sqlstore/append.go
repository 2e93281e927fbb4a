package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Append implements store.Store.
func (s *Store) Append(ctx context.Context, records []record.Record) ([]store.AppendResult, error) {
	results, _, err := s.AppendTo(ctx, "", records)
	return results, err
}

// AppendTo implements store.Identified: the transaction itself looks where it is.
func (s *Store) AppendTo(ctx context.Context, server string, records []record.Record) (results []store.AppendResult, now string, err error) {
	results, err = provider.Append(ctx, s.Metrics, records, func(ctx context.Context, records []record.Record) (stored map[string]provider.Content, err error) {
		if len(records) > 0 {
			stored, now, err = s.appendFresh(ctx, server, records)
		} else if now, err = s.Server(ctx); err == nil {
			err = provider.Moved(server, now)
		}
		return stored, err
	})
	return results, now, err
}

// appendFresh inserts records of different ids and returns what is stored under them now,
// and in which server. Rows are inserted in id order, as updates lock them, so that
// transactions wait for each other but never deadlock.
func (s *Store) appendFresh(ctx context.Context, server string, records []record.Record) (stored map[string]provider.Content, now string, err error) {
	err = s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		stored = map[string]provider.Content{}
		reserved, err := s.Dialect.Reserve(ctx, tx, len(records), []Cause{Appended})
		if err != nil {
			return fmt.Errorf("reserving log positions: %w", err)
		}
		now = reserved.Server
		if err := provider.Moved(server, now); err != nil {
			return err
		}
		rows := make([]row, len(records))
		for i, r := range records {
			r.Append, r.Revision = reserved.Seqs[i], 0
			rows[i] = row{rec: r, digest: record.Content(r), tx: reserved.Tx, seq: reserved.Seqs[i], at: reserved.At}
			if err := rows[i].encode(); err != nil {
				return err
			}
		}
		slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.rec.ID, b.rec.ID) })
		for part := range slices.Chunk(rows, s.Dialect.InsertRows) {
			if err := s.insert(ctx, tx, part, stored); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		s.wake.Notify(Appended)
	}
	return stored, now, err
}

// insert writes one statement's rows and reads the digests of those whose id
// was taken, in a statement that sees the transactions it has waited for.
func (s *Store) insert(ctx context.Context, tx *sql.Tx, rows []row, stored map[string]provider.Content) error {
	query, args, err := s.insertSQL(rows)
	if err != nil {
		return err
	}
	err = each(ctx, tx, query, args, func(scan func(...any) error) error {
		var id string
		err := scan(&id)
		stored[id] = provider.Content{Fresh: true}
		return err
	})
	if err != nil {
		return fmt.Errorf("inserting: %w", err)
	}
	var c compiler
	var taken []string
	for i := range rows {
		r := &rows[i]
		id := r.rec.ID
		if stored[id].Fresh {
			stored[id] = provider.Content{Digest: r.digest, Fresh: true}
		} else {
			taken = append(taken, c.arg(id))
		}
	}
	if len(taken) == 0 {
		return nil
	}
	found := 0
	err = each(ctx, tx, "SELECT id, digest, node FROM health_events WHERE id IN ("+strings.Join(taken, ", ")+")", c.args,
		func(scan func(...any) error) error {
			var id string
			var c provider.Content
			err := scan(&id, &c.Digest, &c.Node)
			if strings.HasPrefix(c.Node, hashed) {
				c.Node = ""
			}
			stored[id] = c
			found++
			return err
		})
	if err != nil {
		return fmt.Errorf("comparing: %w", err)
	}
	if found != len(taken) {
		return errors.New("a record expired while it was appended again")
	}
	return nil
}

func (s *Store) insertSQL(rows []row) (string, []any, error) {
	columns := slices.Concat(insertColumns, changeColumns)
	names := make([]string, len(columns))
	for i, col := range columns {
		names[i] = col.name
	}
	list := strings.Join(names, ", ")
	var c compiler
	source := "VALUES "
	if s.Dialect.Arrays {
		values, arrays, err := s.arrays(&c, columns, rows)
		if err != nil {
			return "", nil, err
		}
		source = "SELECT " + values + " FROM unnest(" + arrays + ") AS rows (" + list + ")"
	} else {
		source += s.tuples(&c, columns, rows)
	}
	return "INSERT INTO health_events (" + list + ") " + source + " ON CONFLICT (id) DO NOTHING RETURNING id", c.args, nil
}

// tuples has one argument per row and column.
func (s *Store) tuples(c *compiler, columns []column, rows []row) string {
	tuples := make([]string, len(rows))
	for i := range rows {
		values := make([]string, len(columns))
		for j, col := range columns {
			values[j] = c.arg(col.value(&s.Dialect, &rows[i]))
		}
		tuples[i] = "(" + strings.Join(values, ", ") + ")"
	}
	return strings.Join(tuples, ", ")
}

// arrays has one argument per column: the statement is short, and the same for
// every number of rows. Documents travel as text.
func (s *Store) arrays(c *compiler, columns []column, rows []row) (values, arrays string, err error) {
	for i, col := range columns {
		list, err := col.list(&s.Dialect, rows)
		if err != nil {
			return "", "", err
		}
		value, kind := col.name, col.kind
		if kind == "jsonb" {
			value, kind = value+"::jsonb", "text"
		}
		if i > 0 {
			values, arrays = values+", ", arrays+", "
		}
		values, arrays = values+value, arrays+c.arg(list)+"::"+kind+"[]"
	}
	return values, arrays, nil
}

// rowQueryer is a transaction or a connection.
type rowQueryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// each runs a query and calls f for each of its rows.
func each(ctx context.Context, q rowQueryer, query string, args []any, f func(scan func(...any) error) error) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
