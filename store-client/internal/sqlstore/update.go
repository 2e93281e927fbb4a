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
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Update implements store.Store. A small one joins others where a server is asked; an
// error of the context means then that it was not applied.
func (s *Store) Update(ctx context.Context, writer record.Writer, changes []store.Change) ([]record.Record, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	u := &jointUpdate{ctx: ctx, writer: writer, changes: changes, done: make(chan struct{})}
	bounded, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	err := errAlone
	if s.Dialect.Joint != nil && len(changes) <= jointChanges {
		err = s.join(bounded, u)
	}
	if errors.Is(err, errAlone) {
		u.after, err = s.updateAlone(bounded, writer, changes)
	}
	if err != nil {
		return nil, s.Metrics.NotUpdated(writer, len(changes), err)
	}
	s.wake.Notify(causes(writer, u.after)...)
	return u.after, nil
}

// updateAlone is an update in a transaction of its own: rows are locked in id order,
// all changes are checked, then all are written.
func (s *Store) updateAlone(ctx context.Context, writer record.Writer, changes []store.Change) (after []record.Record, err error) {
	err = s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		before, err := s.lock(ctx, tx, changes)
		if err != nil {
			return err
		}
		after, err = provider.Apply(writer, before, changes)
		if err != nil {
			return err
		}
		reserved, err := s.Dialect.Reserve(ctx, tx, len(after), causes(writer, after))
		if err != nil {
			return fmt.Errorf("reserving log positions: %w", err)
		}
		rows := make([]row, len(after))
		for i, r := range after {
			rows[i] = row{rec: r, tx: reserved.Tx, seq: reserved.Seqs[i], at: reserved.At}
			if err := rows[i].encode(); err != nil {
				return fmt.Errorf("record %q: %w", r.ID, err)
			}
		}
		return s.change(ctx, tx, rows)
	})
	return after, err
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

// change writes rows that the transaction has locked: in a few statements where
// a server is asked, and else one by one.
func (s *Store) change(ctx context.Context, tx *sql.Tx, rows []row) error {
	if !s.Dialect.Arrays {
		return s.changeEach(ctx, tx, rows)
	}
	for part := range slices.Chunk(rows, s.Dialect.InsertRows) {
		query, args, err := s.changeSQL(part)
		if err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, query, args...)
		if err == nil {
			err = wrote(res, len(part))
		}
		if err != nil {
			return fmt.Errorf("writing %d records: %w", len(part), err)
		}
	}
	return nil
}

// changeSQL updates all rows in one statement.
func (s *Store) changeSQL(rows []row) (string, []any, error) {
	columns := slices.Concat(insertColumns[:1], changeColumns) // the id and what changes
	names, sets := make([]string, len(columns)), []string{}
	for i, col := range columns {
		names[i] = col.name
		if i > 0 {
			sets = append(sets, col.set())
		}
	}
	var c compiler
	_, arrays, err := s.arrays(&c, columns, rows)
	if err != nil {
		return "", nil, err
	}
	return "UPDATE health_events SET " + strings.Join(sets, ", ") + " FROM unnest(" + arrays + ") AS rows (" +
		strings.Join(names, ", ") + ") WHERE health_events.id = rows.id", c.args, nil
}

// changeEach updates row by row with one prepared statement.
func (s *Store) changeEach(ctx context.Context, tx *sql.Tx, rows []row) error {
	var sets []string
	for i, col := range changeColumns {
		sets = append(sets, fmt.Sprintf("%s = $%d", col.name, i+1))
	}
	statement, err := tx.PrepareContext(ctx, fmt.Sprintf("UPDATE health_events SET %s WHERE id = $%d", strings.Join(sets, ", "), len(sets)+1))
	if err != nil {
		return fmt.Errorf("preparing the update: %w", err)
	}
	defer statement.Close()
	for i := range rows {
		var args []any
		for _, col := range changeColumns {
			args = append(args, col.value(&s.Dialect, &rows[i]))
		}
		res, err := statement.ExecContext(ctx, append(args, rows[i].rec.ID)...)
		if err == nil {
			err = wrote(res, 1)
		}
		if err != nil {
			return fmt.Errorf("writing record %q: %w", rows[i].rec.ID, err)
		}
	}
	return nil
}

// wrote makes sure that a statement changed every row that is locked.
func wrote(res sql.Result, want int) error {
	n, err := res.RowsAffected()
	if err != nil {
		return fmt.Errorf("counting the written rows: %w", err)
	}
	if n != int64(want) {
		return fmt.Errorf("%d of %d locked rows were written", n, want)
	}
	return nil
}

// horizonWarnAfter is how long one transaction may keep the server's horizon back before
// it is named.
const horizonWarnAfter = time.Minute

// horizonHold is since when the oldest transaction under way has kept the server's
// horizon at tx. Feeds deliver beyond it and remember which transactions they
// have seen; the server's own cleaning stands still, though.
type horizonHold struct {
	tx       int64
	since    time.Time
	reported bool
}

// watch notes how long the horizon has stood, and names once who holds it.
func (f *feed) watch(ctx context.Context, head Head) {
	now := f.Clock.Now()
	switch {
	case head.Shot == nil:
		f.horizon = horizonHold{}
	case f.horizon.since.IsZero() || f.horizon.tx != head.Tx:
		f.horizon = horizonHold{tx: head.Tx, since: now}
	}
	var stood time.Duration
	if !f.horizon.since.IsZero() {
		stood = max(0, now.Sub(f.horizon.since))
	}
	f.Metrics.OldestTransaction.WithLabelValues(f.Name).Set(stood.Seconds())
	if stood < horizonWarnAfter || f.horizon.reported || f.s.Dialect.Holder == nil {
		return
	}
	f.horizon.reported = true
	holder, err := f.s.Dialect.Holder(ctx, f.s.db)
	if err != nil {
		f.Log.Warn("long-running transaction found, its owner is unknown", "consumer", f.Name, "error", err)
		return
	}
	f.Log.Warn("long-running transaction found, change feeds continue but the server cannot clean up newer rows until it ends", "consumer", f.Name, "oldest", holder)
}
