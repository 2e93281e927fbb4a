// Package sqlstore implements the store port on SQL databases. The providers sqlite and
// postgresql give it a connection, a schema and a Dialect; everything else is the same code on
// both.
//
// A record is stored as its JSON document beside plain columns that are
// computed in Go from the record at every write. Selectors compile to these
// columns only.
package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Config is what a provider hands over.
type Config struct {
	Dialect Dialect
	Log     *slog.Logger
	Clock   clock.WithTicker
	Metrics *provider.Metrics
	// PollOnly turns wake-ups off; feeds notice changes by polling.
	PollOnly bool
	// ReadOnly means that the database's connections cannot write.
	ReadOnly bool
	// Schema is the version of the schema that this program knows. Nothing is written to
	// a database with a newer one, which another program has brought up to date since
	// this one opened it. 0 is of an account that may not read the version.
	Schema int
}

// Store implements store.Store on a SQL database.
type Store struct {
	Config
	db     *sql.DB
	wake   Signal
	writer chan struct{}
	joint  joint
	// undecodable are the documents that lists leave out.
	undecodable provider.Undecodable

	ctx    context.Context
	cancel context.CancelFunc
	waking sync.Once
	tasks  sync.WaitGroup
}

var (
	_ store.Store      = (*Store)(nil)
	_ store.Identified = (*Store)(nil)
)

// New wraps an opened database whose schema is in place; Close closes it.
func New(db *sql.DB, cfg Config) *Store {
	closing, cancel := context.WithCancel(context.Background())
	s := &Store{Config: cfg, db: db, ctx: closing, cancel: cancel}
	s.undecodable = provider.Undecodable{Clock: cfg.Clock, Log: cfg.Log, Metrics: cfg.Metrics}
	if !cfg.ReadOnly {
		s.undecodable.Keep = s.Dead
	}
	if cfg.Dialect.Serial {
		s.writer = make(chan struct{}, 1)
	}
	return s
}

// Close ends the wake-ups and closes the database.
func (s *Store) Close() error {
	s.cancel()
	s.tasks.Wait()
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("closing the store: %w", err)
	}
	return nil
}

// Ping implements store.Store.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	var one int
	if err := s.db.QueryRowContext(ctx, "SELECT 1").Scan(&one); err != nil {
		return fmt.Errorf("connecting to the store: %w", err)
	}
	return nil
}

// Server implements store.Identified.
func (s *Store) Server(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	head, err := s.head(ctx, s.db)
	if err != nil {
		return "", fmt.Errorf("reading the identity of the server: %w", err)
	}
	return head.Server, nil
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, id string) (record.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	var doc []byte
	err := s.db.QueryRowContext(ctx, "SELECT doc FROM health_events WHERE id = $1", id).Scan(&doc)
	if errors.Is(err, sql.ErrNoRows) {
		return record.Record{}, fmt.Errorf("reading record %q: %w", id, store.ErrNotFound)
	}
	if err != nil {
		return record.Record{}, fmt.Errorf("reading record %q: %w", id, err)
	}
	r, err := decode(doc)
	if err != nil {
		return record.Record{}, fmt.Errorf("reading record %q: %w", id, err)
	}
	return r, nil
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, q store.Query) ([]record.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	return s.undecodable.List(ctx, q, func(ctx context.Context, limit int, page *provider.Page) error {
		query, args := listSQL(q, limit)
		rows, err := s.db.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for !page.Full() && rows.Next() {
			var d provider.Document
			if err := rows.Scan(&d.ID, &d.Body); err != nil {
				return err
			}
			var r record.Record
			r, d.Why = decode(d.Body)
			page.Add(r, d)
		}
		return rows.Err()
	})
}

func listSQL(q store.Query, limit int) (string, []any) {
	c := compiler{}
	where := c.selector(q.Selector)
	if q.After > 0 {
		switch q.Order {
		case store.ByAppend:
			where += " AND append_seq > " + c.arg(q.After)
		case store.ByAppendDescending:
			where += " AND append_seq < " + c.arg(q.After)
		case store.BySeqDescending:
		}
	}
	if len(q.Except) > 0 {
		where += " AND id NOT IN (" + c.list(q.Except) + ")"
	}
	order := "append_seq"
	switch q.Order {
	case store.ByAppend:
	case store.BySeqDescending:
		order = "seq DESC, append_seq DESC"
	case store.ByAppendDescending:
		order = "append_seq DESC"
	}
	query := "SELECT id, doc FROM health_events WHERE " + where + " ORDER BY " + order
	if limit > 0 {
		query += " LIMIT " + c.arg(limit)
	}
	return query, c.args
}

// expireBatch bounds the rows that one transaction of Expire deletes.
const expireBatch = 1000

const expireSQL = "SELECT id FROM health_events WHERE expire_at < $1 AND (stored_at <= $2 OR expire_at < $3) ORDER BY expire_at LIMIT $4"

// passed is up to when stored records have been committed by every consumer.
func (s *Store) passed(ctx context.Context, tx *sql.Tx) (time.Time, error) {
	var oldest instant
	var unmarked, all int
	err := tx.QueryRowContext(ctx, "SELECT MIN(mark), COUNT(*) - COUNT(mark), COUNT(*) FROM feed_positions").Scan(&oldest, &unmarked, &all)
	switch {
	case err != nil:
		return time.Time{}, fmt.Errorf("reading the positions of consumers: %w", err)
	case all == 0:
		return provider.Never, nil
	case unmarked > 0:
		return time.Unix(0, 0), nil
	}
	return oldest.time(), nil
}

// Expire implements store.Store. Records that are being updated are left for
// the next call.
func (s *Store) Expire(ctx context.Context, now time.Time) (int, error) {
	n, err := s.deleteAll(ctx, func(ctx context.Context, tx *sql.Tx) (sql.Result, error) {
		passed, err := s.passed(ctx, tx)
		if err != nil {
			return nil, err
		}
		overdue := now.Add(-store.ExpireGrace)
		return tx.ExecContext(ctx, "DELETE FROM health_events WHERE id IN ("+expireSQL+s.Dialect.SkipLocked+")",
			s.Dialect.Time(&now), s.Dialect.Time(&passed), s.Dialect.Time(&overdue), expireBatch)
	})
	s.Metrics.Expired.Add(float64(n))
	if err != nil {
		return n, fmt.Errorf("expiring records: %w", err)
	}
	return n, nil
}

// deleteAll deletes batches, each in a transaction, until one is not full.
func (s *Store) deleteAll(ctx context.Context, batch func(ctx context.Context, tx *sql.Tx) (sql.Result, error)) (total int, err error) {
	for {
		var n int64
		err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
			result, err := batch(ctx, tx)
			if err != nil {
				return err
			}
			n, err = result.RowsAffected()
			return err
		})
		if err != nil {
			return total, err
		}
		if total += int(n); n < expireBatch {
			return total, nil
		}
	}
}

// write runs f in one transaction. An error of the commit leaves open whether
// it was applied; every write of the port may be repeated.
func (s *Store) write(ctx context.Context, f func(ctx context.Context, tx *sql.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	if s.writer != nil {
		select {
		case s.writer <- struct{}{}:
			defer func() { <-s.writer }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	tx, err := s.begin(ctx)
	if err != nil {
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	if err = s.checkVersion(ctx, tx); err == nil {
		err = f(ctx, tx)
	}
	if err != nil {
		if rollback := tx.Rollback(); rollback != nil && !errors.Is(rollback, sql.ErrTxDone) {
			return errors.Join(err, fmt.Errorf("rolling back: %w", rollback))
		}
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("committing: %w", err)
	}
	return nil
}

// begin waits while another process holds the only write transaction.
func (s *Store) begin(ctx context.Context) (*sql.Tx, error) {
	for {
		tx, err := s.db.BeginTx(ctx, nil)
		if err == nil || ctx.Err() != nil || s.Dialect.Busy == nil || !s.Dialect.Busy(err) {
			return tx, err
		}
	}
}

// subscribe starts the provider's wake-ups with the first feed, so that a
// process that only writes holds no connection for them.
func (s *Store) subscribe(heeds func(Cause) bool) (<-chan struct{}, func()) {
	s.waking.Do(func() {
		if s.PollOnly || s.Dialect.Wake == nil {
			return
		}
		s.tasks.Go(func() { s.Dialect.Wake(s.ctx, s.wake.Notify) })
	})
	return s.wake.Subscribe(heeds)
}

func decode(doc []byte) (record.Record, error) {
	r, err := record.Decode(doc)
	if err != nil {
		return r, fmt.Errorf("%w: %w", store.ErrUndecodable, err)
	}
	return r, nil
}
