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
	return provider.Append(ctx, s.Metrics, records, s.appendFresh)
}

// appendFresh inserts records of different ids and says what is stored under
// them now. Rows are inserted in id order, as updates lock them, so that
// transactions wait for each other but never deadlock.
func (s *Store) appendFresh(ctx context.Context, records []record.Record) (map[string]provider.Content, error) {
	if len(records) == 0 {
		return nil, nil
	}
	var stored map[string]provider.Content
	err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		stored = map[string]provider.Content{}
		stamp, err := s.Dialect.Stamp(ctx, tx, len(records))
		if err != nil {
			return fmt.Errorf("reserving places: %w", err)
		}
		rows := make([]row, len(records))
		for i, r := range records {
			r.Append, r.Revision = stamp.Seqs[i], 0
			rows[i] = row{rec: r, tx: stamp.Tx, seq: stamp.Seqs[i], at: stamp.At}
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
		s.bell.Ring()
	}
	return stored, err
}

// insert writes one statement's rows and reads the digests of those whose id
// was taken, in a statement that sees the transactions it has waited for.
func (s *Store) insert(ctx context.Context, tx *sql.Tx, rows []row, stored map[string]provider.Content) error {
	query, args := s.insertSQL(rows)
	err := each(ctx, tx, query, args, func(scan func(...any) error) error {
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
	for _, r := range rows {
		id := r.rec.ID
		if stored[id].Fresh {
			stored[id] = provider.Content{Digest: record.Content(r.rec), Fresh: true}
		} else {
			taken = append(taken, c.arg(id))
		}
	}
	if len(taken) == 0 {
		return nil
	}
	found := 0
	err = each(ctx, tx, "SELECT id, digest FROM health_events WHERE id IN ("+strings.Join(taken, ", ")+")", c.args,
		func(scan func(...any) error) error {
			var id, digest string
			err := scan(&id, &digest)
			stored[id] = provider.Content{Digest: digest}
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

func (s *Store) insertSQL(rows []row) (string, []any) {
	columns := slices.Concat(insertColumns, changeColumns)
	var c compiler
	var tuples []string
	for _, r := range rows {
		var values []string
		for _, col := range columns {
			values = append(values, c.arg(col.value(&s.Dialect, r)))
		}
		tuples = append(tuples, "("+strings.Join(values, ", ")+")")
	}
	var names []string
	for _, col := range columns {
		names = append(names, col.name)
	}
	return "INSERT INTO health_events (" + strings.Join(names, ", ") + ") VALUES " + strings.Join(tuples, ", ") +
		" ON CONFLICT (id) DO NOTHING RETURNING id", c.args
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
