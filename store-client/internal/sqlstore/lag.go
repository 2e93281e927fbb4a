package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/store"
)

var _ store.Reader = (*Store)(nil)

// Consumers implements store.Reader.
func (s *Store) Consumers(ctx context.Context) ([]store.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing consumers: %w", err)
	}
	defer conn.Close()
	var out []store.Consumer
	err = each(ctx, conn, "SELECT consumer, mark, updated_at FROM feed_positions ORDER BY consumer", nil, func(scan func(...any) error) error {
		var c store.Consumer
		var mark, at instant
		if err := scan(&c.Name, &mark, &at); err != nil {
			return err
		}
		c.Mark, c.CommittedAt = mark.time(), at.time()
		out = append(out, c)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing consumers: %w", err)
	}
	return out, nil
}

// Lag implements store.Reader.
func (s *Store) Lag(ctx context.Context, consumer string, selector record.Selector, limit int) (store.Lag, error) {
	if limit < 1 {
		return store.Lag{}, fmt.Errorf("reading the lag of %s: the limit %d is less than 1", consumer, limit)
	}
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return store.Lag{}, fmt.Errorf("reading the lag of %s: %w", consumer, err)
	}
	defer conn.Close()
	lag, err := s.lag(ctx, conn, newFeed(s, consumer, selector), limit)
	if err != nil {
		return store.Lag{}, fmt.Errorf("reading the lag of %s: %w", consumer, err)
	}
	return lag, nil
}

// lag counts what f, which is not opened, would deliver next.
func (s *Store) lag(ctx context.Context, conn *sql.Conn, f *feed, limit int) (store.Lag, error) {
	// The position before the head: a consumer at work never passes a head that
	// is read later.
	l, err := readLine(ctx, conn, f.Name)
	if err != nil {
		return store.Lag{}, err
	}
	head, err := s.head(ctx, conn)
	if err != nil {
		return store.Lag{}, fmt.Errorf("reading the head: %w", err)
	}
	pos, why := standing(l, head, f.Kind, 0)
	f.cursor, f.read = pos, rowKey{pos.Tx, pos.Seq}
	lag := store.Lag{Lost: string(why)}
	query, args := f.countSQL(head, limit)
	var oldest instant
	if err := conn.QueryRowContext(ctx, query, args...).Scan(&lag.Pending, &oldest); err != nil {
		return store.Lag{}, fmt.Errorf("counting: %w", err)
	}
	lag.Oldest = oldest.time()
	return lag, nil
}

// CheckSchema refuses a database whose schema is not the one of steps, as
// Migrate would leave it, and changes nothing.
func CheckSchema(ctx context.Context, q Queryer, steps fs.FS) error {
	names, err := fs.Glob(steps, "schema/*.sql")
	if err != nil {
		return fmt.Errorf("reading the schema: %w", err)
	}
	var version int
	if err := q.QueryRowContext(ctx, "SELECT 1").Scan(&version); err != nil {
		return fmt.Errorf("connecting to the store: %w", err)
	}
	err = q.QueryRowContext(ctx, schemaSQL).Scan(&version)
	if err != nil {
		return fmt.Errorf("reading the schema version (check that a service has opened this store): %w", err)
	}
	if version > len(names) {
		return fmt.Errorf("%w: %w", provider.ErrUnusable, provider.NewerSchema(version, len(names)))
	}
	if version != len(names) {
		return fmt.Errorf("%w: its schema has version %d, this program requires %d", provider.ErrUnusable, version, len(names))
	}
	return nil
}

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
