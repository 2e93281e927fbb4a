package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"time"

	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Dead implements store.Store. The same letter again replaces the first.
func (s *Store) Dead(ctx context.Context, deadLetter store.DeadLetter) error {
	err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO dead_letters (source, id, reason, body, at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (source, id) DO UPDATE SET reason = excluded.reason, body = excluded.body, at = excluded.at`,
			provider.Text(deadLetter.Source), provider.Text(deadLetter.ID), provider.Text(deadLetter.Reason), deadLetter.Body, s.Dialect.Time(&deadLetter.At))
		return err
	})
	if err != nil {
		return fmt.Errorf("storing dead letter %q of %s: %w", deadLetter.ID, deadLetter.Source, err)
	}
	return nil
}

// DeadLetters implements store.Store.
func (s *Store) DeadLetters(ctx context.Context, source string) ([]store.DeadLetter, error) {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	var out []store.DeadLetter
	size := 0
	err := each(ctx, s.db, "SELECT id, reason, body, at FROM dead_letters WHERE source = $1 ORDER BY at DESC, id LIMIT $2",
		[]any{source, store.MaxDeadLetters}, func(scan func(...any) error) error {
			if size >= store.PageBytes {
				return nil
			}
			l := store.DeadLetter{Source: source}
			var at instant
			if err := scan(&l.ID, &l.Reason, &l.Body, &at); err != nil {
				return err
			}
			l.At = at.time()
			out, size = append(out, l), size+len(l.Body)
			return nil
		})
	if err != nil {
		return nil, fmt.Errorf("reading the dead letters of %s: %w", source, err)
	}
	return out, nil
}

// trimSQL deletes the dead letters of the sources from $1 to $2 beyond the newest $3 of
// each, those beyond $4 bytes, and those before $5.
const trimSQL = `DELETE FROM dead_letters WHERE (source, id) IN (SELECT source, id FROM (
    SELECT source, id, at, row_number() OVER newest AS place, sum(length(body)) OVER newest AS bytes
    FROM dead_letters WHERE source >= $1 AND source <= $2
    WINDOW newest AS (PARTITION BY source ORDER BY at DESC, id ROWS UNBOUNDED PRECEDING)
) AS kept WHERE place > $3 OR bytes > $4 OR at < $5)`

// TrimDeadLetters implements store.Store.
func (s *Store) TrimDeadLetters(ctx context.Context, bound store.DeadLetterBound, now time.Time) (int, error) {
	last, count, bytes, since := bound.Source, math.MaxInt32, int64(math.MaxInt64), time.Unix(0, 0)
	if bound.Prefix {
		last += "\U0010FFFF"
	}
	if bound.Count > 0 {
		count = bound.Count
	}
	if bound.Bytes > 0 {
		bytes = bound.Bytes
	}
	if bound.Age > 0 {
		since = now.Add(-bound.Age)
	}
	var n int64
	err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, trimSQL, bound.Source, last, count, bytes, s.Dialect.Time(&since))
		if err == nil {
			n, err = res.RowsAffected()
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("deleting dead letters of %s: %w", bound.Source, err)
	}
	s.Metrics.Trimmed.Add(float64(n))
	return int(n), nil
}
