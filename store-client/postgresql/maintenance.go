package postgresql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/internal/sqlstore"
)

// queryMaintenances says whether the account may keep what providers announce.
const queryMaintenances = `SELECT COALESCE(bool_and(has_table_privilege(to_regclass(t), right_name)), false)
FROM unnest('{maintenance_events,maintenance_providers}'::text[]) AS t, unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) AS right_name
WHERE to_regclass('maintenance_events') IS NOT NULL`

// OpenMaintenances connects to the database at dsn for what providers announce, with
// an account that needs no right to another table (see roles/maintenance_role.sql).
// It makes no tables and waits for a service that does.
func OpenMaintenances(ctx context.Context, dsn string, cfg sqlstore.Config) (*sqlstore.Store, error) {
	p, err := parse(dsn)
	if err != nil {
		return nil, err
	}
	db := p.open(p.limits.few())
	if err := checkMaintenances(ctx, db, p.unsafe); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the database: %w", p.hint(err)), db.Close())
	}
	if p.clear {
		cfg.Log.Warn(provider.ClearText, "mend_with", "sslmode=verify-full")
	}
	cfg.Dialect = dialect(p.conn, cfg)
	return sqlstore.New(db, cfg), nil
}

func checkMaintenances(ctx context.Context, db *sql.DB, unsafe bool) error {
	if err := checkServer(ctx, db, unsafe); err != nil {
		return err
	}
	var may bool
	if err := db.QueryRowContext(ctx, queryMaintenances).Scan(&may); err != nil {
		return fmt.Errorf("reading what the account may do: %w", err)
	}
	if !may {
		return errors.New("the account may not keep maintenances: has a service of this version made the tables, and has maintenance_role.sql been run since?")
	}
	return nil
}
