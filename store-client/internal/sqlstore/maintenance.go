package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/maintenance"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/store"
)

var _ store.Maintenances = (*Store)(nil)

const (
	insertMaintenance = `INSERT INTO maintenance_events (revision, node, status, is_finished, expire_at, doc, csp, event_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (csp, event_id) DO NOTHING`
	updateMaintenance = `UPDATE maintenance_events SET revision = $1, node = $2, status = $3, is_finished = $4, expire_at = $5, doc = $6
WHERE csp = $7 AND event_id = $8 AND revision = CAST($1 AS BIGINT) - 1`
	insertProvider  = "INSERT INTO maintenance_providers (revision, doc, csp) VALUES ($1, $2, $3) ON CONFLICT (csp) DO NOTHING"
	updateProvider  = "UPDATE maintenance_providers SET revision = $1, doc = $2 WHERE csp = $3 AND revision = CAST($1 AS BIGINT) - 1"
	unfinishedSQL   = "SELECT event_id, revision, doc FROM maintenance_events WHERE csp = $1 AND NOT is_finished ORDER BY event_id"
	maintenanceCols = "SELECT event_id, revision, doc FROM maintenance_events WHERE csp = "
	forgetSQL       = "SELECT csp, event_id FROM maintenance_events WHERE expire_at < $1 AND is_finished ORDER BY expire_at LIMIT $2"
)

// SaveMaintenances implements store.Maintenances: every statement compares the revision.
func (s *Store) SaveMaintenances(ctx context.Context, u store.MaintenanceUpdate) error {
	prepared, err := provider.PrepareMaintenances(u)
	if err == nil {
		err = s.write(ctx, func(ctx context.Context, tx *sql.Tx) error { return s.saveAll(ctx, tx, u.CSP, prepared) })
	}
	if err != nil {
		return fmt.Errorf("saving %d maintenances of %s: %w", len(u.Events), u.CSP, err)
	}
	return nil
}

func (s *Store) saveAll(ctx context.Context, tx *sql.Tx, csp string, p provider.PreparedMaintenances) error {
	// The provider's line first: processes that read the same provider wait here.
	if own := p.Provider; own != nil {
		query := updateProvider
		if own.Revision == 1 {
			query = insertProvider
		}
		res, err := tx.ExecContext(ctx, query, own.Revision, string(p.ProviderDoc), csp)
		if err := compared(res, err, csp); err != nil {
			return err
		}
	}
	for _, fresh := range []bool{true, false} {
		query := updateMaintenance
		if fresh {
			query = insertMaintenance
		}
		some := slices.DeleteFunc(slices.Clone(p.Events), func(e provider.PreparedEvent) bool { return (e.Revision == 1) != fresh })
		if err := s.saveEach(ctx, tx, query, some); err != nil {
			return err
		}
	}
	return nil
}

// saveEach writes one by one with one prepared statement.
func (s *Store) saveEach(ctx context.Context, tx *sql.Tx, query string, events []provider.PreparedEvent) error {
	if len(events) == 0 {
		return nil
	}
	statement, err := tx.PrepareContext(ctx, query)
	if err != nil {
		return fmt.Errorf("preparing the update: %w", err)
	}
	defer statement.Close()
	for _, e := range events {
		res, err := statement.ExecContext(ctx, e.Revision, key(e.NodeName), string(e.Status), e.Finished, s.Dialect.Time(e.ExpireAt),
			string(e.Doc), e.CSP, e.EventID)
		if err := compared(res, err, e.EventID); err != nil {
			return err
		}
	}
	return nil
}

// compared returns an error if a statement did not find the revision that it asked for.
func compared(res sql.Result, err error, id string) error {
	var n int64
	if err == nil {
		n, err = res.RowsAffected()
	}
	if err != nil {
		return fmt.Errorf("writing %q: %w", id, err)
	}
	if n != 1 {
		return fmt.Errorf("%q: %w", id, store.ErrConflict)
	}
	return nil
}

// Unfinished implements store.Maintenances.
func (s *Store) Unfinished(ctx context.Context, csp string) ([]maintenance.Event, error) {
	return s.announced(ctx, csp, unfinishedSQL, []any{csp}, &provider.Announced{})
}

// Maintenances implements store.Maintenances.
func (s *Store) Maintenances(ctx context.Context, csp string, ids []string) ([]maintenance.Event, error) {
	var all provider.Announced
	for part := range slices.Chunk(ids, lockRows) {
		var c compiler
		query := maintenanceCols + c.arg(csp) + " AND event_id IN (" + c.list(part) + ")"
		if _, err := s.announced(ctx, csp, query, c.args, &all); err != nil && !errors.Is(err, store.ErrUndecodable) {
			return nil, err
		}
	}
	return all.Sorted()
}

// announced adds the documents of a query.
func (s *Store) announced(ctx context.Context, csp, query string, args []any, to *provider.Announced) ([]maintenance.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	err := each(ctx, s.db, query, args, func(scan func(...any) error) error {
		var id string
		var revision int64
		var doc []byte
		if err := scan(&id, &revision, &doc); err != nil {
			return err
		}
		to.Add(csp, id, revision, doc)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the maintenances of %s: %w", csp, err)
	}
	return to.Sorted()
}

// Provider implements store.Maintenances.
func (s *Store) Provider(ctx context.Context, csp string) (maintenance.Provider, error) {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	var revision int64
	var doc []byte
	err := s.db.QueryRowContext(ctx, "SELECT revision, doc FROM maintenance_providers WHERE csp = $1", csp).Scan(&revision, &doc)
	if errors.Is(err, sql.ErrNoRows) {
		err = store.ErrNotFound
	}
	var p maintenance.Provider
	if err == nil {
		p, err = provider.DecodeProvider(csp, revision, doc)
	}
	if err != nil {
		return maintenance.Provider{}, fmt.Errorf("reading provider %q: %w", csp, err)
	}
	return p, nil
}

// Forget implements store.Maintenances.
func (s *Store) Forget(ctx context.Context, now time.Time) (int, error) {
	n, err := s.deleteAll(ctx, func(ctx context.Context, tx *sql.Tx) (sql.Result, error) {
		return tx.ExecContext(ctx, "DELETE FROM maintenance_events WHERE (csp, event_id) IN ("+forgetSQL+s.Dialect.SkipLocked+")",
			s.Dialect.Time(&now), expireBatch)
	})
	if err != nil {
		return n, fmt.Errorf("deleting expired maintenances: %w", err)
	}
	return n, nil
}
