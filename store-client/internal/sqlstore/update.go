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

// Update implements store.Store: rows are locked in id order, all changes are
// checked, then all are written.
func (s *Store) Update(ctx context.Context, writer record.Writer, changes []store.Change) error {
	if len(changes) == 0 {
		return nil
	}
	err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		before, err := s.lock(ctx, tx, changes)
		if err != nil {
			return err
		}
		after, err := provider.Apply(writer, before, changes)
		if err != nil {
			return err
		}
		stamp, err := s.Dialect.Stamp(ctx, tx, len(after))
		if err != nil {
			return fmt.Errorf("reserving places: %w", err)
		}
		for i, r := range after {
			if err := s.change(ctx, tx, row{rec: r, tx: stamp.Tx, seq: stamp.Seqs[i], at: stamp.At}); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case err == nil:
		s.bell.Ring()
		return nil
	case errors.Is(err, store.ErrConflict):
		s.Metrics.Conflicts.WithLabelValues(string(writer)).Inc()
	case errors.Is(err, record.ErrNotOwner), errors.Is(err, record.ErrIllegalTransition):
		s.Metrics.Refusals.WithLabelValues(string(writer)).Inc()
	}
	return fmt.Errorf("updating %d records: %w", len(changes), err)
}

// lockRows bounds the ids of one SELECT.
const lockRows = 500

// lock reads the records and keeps them from other writers until the
// transaction ends.
func (s *Store) lock(ctx context.Context, tx *sql.Tx, changes []store.Change) (map[string]record.Record, error) {
	var ids []string
	for _, c := range changes {
		ids = append(ids, c.ID)
	}
	slices.Sort(ids)
	before := map[string]record.Record{}
	for part := range slices.Chunk(slices.Compact(ids), lockRows) {
		var c compiler
		var list []string
		for _, id := range part {
			list = append(list, c.arg(id))
		}
		query := "SELECT id, doc FROM health_events WHERE id IN (" + strings.Join(list, ", ") + ") ORDER BY id" + s.Dialect.ForUpdate
		err := each(ctx, tx, query, c.args, func(scan func(...any) error) error {
			var id string
			var doc []byte
			err := scan(&id, &doc)
			if err == nil {
				before[id], err = decode(doc)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("locking: %w", err)
		}
	}
	return before, nil
}

func (s *Store) change(ctx context.Context, tx *sql.Tx, r row) error {
	if err := r.encode(); err != nil {
		return fmt.Errorf("record %q: %w", r.rec.ID, err)
	}
	var c compiler
	var sets []string
	for _, col := range changeColumns {
		sets = append(sets, col.name+" = "+c.arg(col.value(&s.Dialect, &r)))
	}
	_, err := tx.ExecContext(ctx, "UPDATE health_events SET "+strings.Join(sets, ", ")+" WHERE id = "+c.arg(r.rec.ID), c.args...)
	if err != nil {
		return fmt.Errorf("writing record %q: %w", r.rec.ID, err)
	}
	return nil
}
