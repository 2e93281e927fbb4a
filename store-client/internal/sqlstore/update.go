package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
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
		after, err := apply(writer, before, changes)
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
		s.Metrics.conflicts.WithLabelValues(string(writer)).Inc()
	case errors.Is(err, record.ErrNotOwner), errors.Is(err, record.ErrIllegalTransition):
		s.Metrics.refusals.WithLabelValues(string(writer)).Inc()
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

// apply is the decision of a batch: every record after its change, or what
// forbids the batch. Absence comes before a lost race, a lost race before a
// refusal.
func apply(writer record.Writer, before map[string]record.Record, changes []store.Change) ([]record.Record, error) {
	var missing, lost, refused []error
	var after []record.Record
	done := map[string]bool{}
	for _, c := range changes {
		r, ok := before[c.ID]
		switch {
		case !ok:
			missing = append(missing, fmt.Errorf("record %q: %w", c.ID, store.ErrNotFound))
			continue
		case r.Revision != c.Revision || done[c.ID]:
			lost = append(lost, fmt.Errorf("record %q at revision %d: %w", c.ID, r.Revision, store.ErrConflict))
			continue
		}
		done[c.ID] = true
		next, err := changed(writer, r, c)
		if err != nil {
			refused = append(refused, fmt.Errorf("record %q: %w", c.ID, err))
		}
		after = append(after, next)
	}
	for _, problems := range [][]error{missing, lost, refused} {
		if len(problems) > 0 {
			return nil, errors.Join(problems...)
		}
	}
	return after, nil
}

// changed is r after its change. A change without ExpireAt keeps the stored
// one; fault-quarantine alone may set another.
func changed(writer record.Writer, r record.Record, c store.Change) (record.Record, error) {
	problem := record.CheckWrite(writer, r.Status, c.Status)
	if c.ExpireAt != nil && !sameInstant(c.ExpireAt, r.ExpireAt) {
		if writer != record.FaultQuarantine {
			problem = errors.Join(problem, fmt.Errorf("%w: %s writes expireAt of %s", record.ErrNotOwner, writer, record.FaultQuarantine))
		}
		r.ExpireAt = c.ExpireAt
	}
	r.Status = c.Status
	r.Revision++
	if problem == nil {
		problem = checkStorable(r)
	}
	return r, problem
}

func sameInstant(a, b *time.Time) bool {
	return a == b || a != nil && b != nil && a.Equal(*b)
}

func (s *Store) change(ctx context.Context, tx *sql.Tx, r row) error {
	if err := r.encode(); err != nil {
		return fmt.Errorf("record %q: %w", r.rec.ID, err)
	}
	var c compiler
	var sets []string
	for _, col := range changeColumns {
		sets = append(sets, col.name+" = "+c.arg(col.value(&s.Dialect, r)))
	}
	_, err := tx.ExecContext(ctx, "UPDATE health_events SET "+strings.Join(sets, ", ")+" WHERE id = "+c.arg(r.rec.ID), c.args...)
	if err != nil {
		return fmt.Errorf("writing record %q: %w", r.rec.ID, err)
	}
	return nil
}
