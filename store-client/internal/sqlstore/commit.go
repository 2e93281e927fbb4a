package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/store-client/internal/provider"
)

// stored is a consumer's line in the table of positions.
type stored struct {
	text string
	// mark is when the last committed record was stored, by the store's clock:
	// the low-water mark of a rescan. It is the store's time and not createdAt,
	// because a spooled record is stored, and an old record changed, long after
	// it was created.
	mark *time.Time
}

func readStored(ctx context.Context, q Queryer, consumer, lock string) (stored, bool, error) {
	var st stored
	var mark instant
	err := q.QueryRowContext(ctx, "SELECT position, mark FROM feed_positions WHERE consumer = $1"+lock, consumer).Scan(&st.text, &mark)
	if errors.Is(err, sql.ErrNoRows) {
		return stored{}, false, nil
	}
	if err != nil {
		return stored{}, false, fmt.Errorf("reading the position: %w", err)
	}
	st.mark = mark.t
	return st, true, nil
}

// resume sets the cursor: the stored position, the beginning for a consumer
// without one, or a rescan when the stored one says nothing here.
func (f *feed) resume(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	// Rows of a database restored from another server are made readable first.
	if err := f.s.Dialect.Adopt(ctx, f.s.db); err != nil {
		return fmt.Errorf("adopting the database: %w", err)
	}
	head, err := f.s.Dialect.Head(ctx, f.s.db)
	if err != nil {
		return fmt.Errorf("reading the head: %w", err)
	}
	f.buffer, f.target = nil, nil
	st, found, err := readStored(ctx, f.s.db, f.consumer, "")
	if err != nil {
		return err
	}
	pos, why := f.standing(st, found, head)
	if why == notLost {
		f.cursor = pos
		return nil
	}
	return f.again(ctx, head, st, pos, why)
}

// standing is where the consumer goes on: at its stored position, at the
// beginning when it has none, or with a rescan when the stored one says nothing
// here, and then why.
func (f *feed) standing(st stored, found bool, head Head) (position, loss) {
	if !found {
		return position{Version: positionVersion, Server: head.Server, Kind: f.kind}, notLost
	}
	pos, err := parsePosition(st.text)
	why := unreadable
	if err == nil {
		why = pos.lost(f.kind, head)
	}
	if why == notLost {
		return pos, notLost
	}
	return again(f.kind, head, st.mark), why
}

// again begins the rescan at pos and stores that it began.
func (f *feed) again(ctx context.Context, head Head, st stored, pos position, why loss) error {
	replaced := false
	err := f.s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, "UPDATE feed_positions SET position = $1, updated_at = $2 WHERE consumer = $3 AND position = $4",
			pos.String(), f.s.Dialect.Time(&head.At), f.consumer, st.text)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		replaced = n == 1
		return err
	})
	if err != nil {
		return fmt.Errorf("beginning a rescan: %w", err)
	}
	if !replaced {
		return fmt.Errorf("beginning a rescan: the position of %s was changed by another process", f.consumer)
	}
	f.cursor = pos
	reason := string(why)
	if st.mark == nil {
		reason += "-mark-lost"
	}
	f.s.Metrics.Rescans.WithLabelValues(f.consumer, reason).Inc()
	f.s.Log.Warn("reading again after a lost feed position", "consumer", f.consumer, "reason", reason, "mark", st.mark)
	return nil
}

// Commit implements store.Feed; it never goes backwards.
func (f *feed) Commit(ctx context.Context, text string) error {
	pos, err := parsePosition(text)
	if err == nil && pos.Kind != f.kind {
		err = fmt.Errorf("%w: it follows %s", errPosition, pos.Kind)
	}
	if err == nil {
		err = f.store(ctx, pos)
	}
	if err != nil {
		return fmt.Errorf("committing the position of %s: %w", f.consumer, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.committed = text
	return nil
}

// store writes a position unless the stored one is further.
func (f *feed) store(ctx context.Context, pos position) error {
	return f.s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		// An absent line cannot be locked: put an empty one there first.
		if _, err := tx.ExecContext(ctx, `INSERT INTO feed_positions (consumer, position, updated_at) VALUES ($1, '', $2)
ON CONFLICT (consumer) DO NOTHING`, f.consumer, f.now()); err != nil {
			return err
		}
		st, found, err := readStored(ctx, tx, f.consumer, f.s.Dialect.ForUpdate)
		if err != nil {
			return err
		}
		if !found {
			return errors.New("the position was deleted meanwhile")
		}
		old, err := parsePosition(st.text)
		if err == nil && old.Kind == pos.Kind {
			stale, err := f.stale(ctx, tx, pos, old)
			if err != nil || stale {
				return err
			}
		}
		mark := st.mark
		if pos.Rescan == nil && pos.Mark > 0 {
			at := time.UnixMicro(pos.Mark)
			mark = &at
		}
		_, err = tx.ExecContext(ctx, "UPDATE feed_positions SET position = $1, mark = $2, updated_at = $3 WHERE consumer = $4",
			pos.String(), f.s.Dialect.Time(mark), f.now(), f.consumer)
		return err
	})
}

// stale says whether pos may not replace old: it is not further, or it belongs
// to a server that is no longer there.
func (f *feed) stale(ctx context.Context, tx *sql.Tx, pos, old position) (bool, error) {
	if pos.Server == old.Server {
		return !pos.ahead(old), nil
	}
	head, err := f.s.Dialect.Head(ctx, tx)
	if err != nil {
		return false, fmt.Errorf("reading the head: %w", err)
	}
	return pos.Server != head.Server, nil
}

func (f *feed) now() any {
	now := f.s.Clock.Now()
	return f.s.Dialect.Time(&now)
}
