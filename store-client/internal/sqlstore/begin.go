package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Begin implements store.Store: the position of a consumer that has none is
// that of a rescan from since.
func (s *Store) Begin(ctx context.Context, consumer string, selector record.Selector, since time.Time) (bool, error) {
	if consumer == "" {
		return false, errors.New("beginning a feed: the consumer has no name")
	}
	first := false
	err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		head, err := s.Dialect.Head(ctx, tx)
		if err != nil {
			return fmt.Errorf("reading the head: %w", err)
		}
		pos := again(newFeed(s, consumer, selector).kind, head, &since)
		res, err := tx.ExecContext(ctx, `INSERT INTO feed_positions (consumer, position, mark, updated_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (consumer) DO NOTHING`, consumer, pos.String(), s.Dialect.Time(&since), s.Dialect.Time(&head.At))
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		first = n == 1
		return err
	})
	if err != nil {
		return false, fmt.Errorf("beginning the feed of %s: %w", consumer, err)
	}
	return first, nil
}
