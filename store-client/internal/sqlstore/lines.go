package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
)

// lines implements provider.Lines.
type lines struct{ *Store }

// Line reads a consumer's line.
func (l lines) Line(ctx context.Context, consumer string) (provider.Line, error) {
	return readLine(ctx, l.db, consumer)
}

func readLine(ctx context.Context, q Queryer, consumer string) (provider.Line, error) {
	l := provider.Line{Stored: true}
	var mark instant
	err := q.QueryRowContext(ctx, "SELECT position, mark FROM feed_positions WHERE consumer = $1", consumer).Scan(&l.Text, &mark)
	if errors.Is(err, sql.ErrNoRows) {
		return provider.Line{}, nil
	}
	if err != nil {
		return provider.Line{}, fmt.Errorf("reading the position: %w", err)
	}
	l.Mark = mark.t
	return l, nil
}

// Swap writes a consumer's line if the old one is there.
func (l lines) Swap(ctx context.Context, consumer string, old, with provider.Line) (swapped bool, err error) {
	now := l.Clock.Now()
	query := "INSERT INTO feed_positions (position, mark, updated_at, consumer) VALUES ($1, $2, $3, $4) ON CONFLICT (consumer) DO NOTHING"
	args := []any{with.Text, l.Dialect.Time(with.Mark), l.Dialect.Time(&now), consumer}
	if old.Stored {
		query = "UPDATE feed_positions SET position = $1, mark = $2, updated_at = $3 WHERE consumer = $4 AND position = $5"
		args = append(args, old.Text)
	}
	err = l.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, query, args...)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		swapped = n == 1
		return err
	})
	return swapped, err
}

// Begin implements store.Store.
func (s *Store) Begin(ctx context.Context, consumer string, selector record.Selector, since time.Time) (bool, error) {
	f := newFeed(s, consumer, selector)
	return f.Begin(ctx, since, func(ctx context.Context) (position, error) {
		head, err := s.head(ctx, s.db)
		if err != nil {
			return position{}, fmt.Errorf("reading the head: %w", err)
		}
		return rescan(&since, head, f.Kind, 0), nil
	})
}
