package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/nvidia/nvsentinel/store-client/internal/provider"
)

// schemaSQL reads the version of the schema.
const schemaSQL = "SELECT COALESCE(MAX(version), 0) FROM store_schema"

// Versions counts the versions of a schema, of which steps has a file each.
func Versions(steps fs.FS) int {
	names, err := fs.Glob(steps, "schema/*.sql")
	if err != nil {
		panic(err) // the pattern is a good one
	}
	return len(names)
}

// checkVersion refuses to write to a newer schema. Who migrates waits until the
// transaction has ended.
func (s *Store) checkVersion(ctx context.Context, tx *sql.Tx) error {
	if s.Schema == 0 {
		return nil
	}
	var version int
	if err := tx.QueryRowContext(ctx, schemaSQL).Scan(&version); err != nil {
		return fmt.Errorf("reading the schema version: %w", err)
	}
	if version > s.Schema {
		return provider.NewerSchema(version, s.Schema)
	}
	return nil
}

// Migrate brings the schema to the newest version inside tx, which must keep
// every other process out until it ends. steps holds one file per version, in
// order of their names; version 0 is an empty database.
func Migrate(ctx context.Context, tx *sql.Tx, steps fs.FS) error {
	names, err := fs.Glob(steps, "schema/*.sql")
	if err != nil {
		return fmt.Errorf("reading the schema: %w", err)
	}
	slices.Sort(names)
	if _, err := tx.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS store_schema (version BIGINT NOT NULL)"); err != nil {
		return fmt.Errorf("creating store_schema: %w", err)
	}
	var version int
	if err := tx.QueryRowContext(ctx, schemaSQL).Scan(&version); err != nil {
		return fmt.Errorf("reading the schema version: %w", err)
	}
	if version > len(names) {
		return fmt.Errorf("%w: %w", provider.ErrUnusable, provider.NewerSchema(version, len(names)))
	}
	for i, name := range names[version:] {
		step, err := fs.ReadFile(steps, name)
		if err != nil {
			return fmt.Errorf("reading the schema: %w", err)
		}
		if _, err := tx.ExecContext(ctx, string(step)); err != nil {
			return fmt.Errorf("applying %s: %w", path.Base(name), err)
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO store_schema (version) VALUES ($1)", version+i+1); err != nil {
			return fmt.Errorf("writing the schema version: %w", err)
		}
	}
	return nil
}
