package postgresql

import (
	"context"
	"database/sql"
	"time"

	"github.com/nvidia/nvsentinel/internal/delay"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/internal/sqlstore"
)

const (
	// strayAfter is how long a transaction of an account that only appends may
	// last; an append takes 30 seconds at most.
	strayAfter = time.Minute
	// strayEvery is how often such transactions are looked for.
	strayEvery = 30 * time.Second
)

// queryStrays ends what grants cannot forbid: an account that may connect may
// set its own timeouts, hold a transaction open, which holds the feeds back, and
// take advisory locks. It ends the sessions of roles that append with the function
// and may not update, as far as we are members of them.
const queryStrays = `SELECT count(*) FROM (
SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity AS a JOIN pg_roles AS r ON r.oid = a.usesysid
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND NOT r.rolsuper AND r.rolname <> current_user
AND pg_has_role(current_user, r.oid, 'MEMBER')
AND has_function_privilege(r.oid, 'append_health_events(text[],text[])', 'EXECUTE') AND NOT has_table_privilege(r.oid, 'health_events', 'UPDATE')
AND (a.xact_start < clock_timestamp() - make_interval(secs => $1)
  OR EXISTS (SELECT FROM pg_locks AS l WHERE l.pid = a.pid AND l.locktype = 'advisory'))
) AS ended`

// endStrays looks for such sessions until ctx ends.
func endStrays(ctx context.Context, db *sql.DB, cfg sqlstore.Config) {
	for {
		n, err := strays(ctx, db, strayAfter)
		if err != nil && ctx.Err() == nil {
			cfg.Log.Warn("ending transactions of accounts that only append; tried again", "error", err)
		}
		if n > 0 {
			cfg.Log.Warn("an account that only appends kept a transaction or a lock; its sessions were ended", "sessions", n, "after", strayAfter)
		}
		if !delay.For(ctx, cfg.Clock, strayEvery) {
			return
		}
	}
}

// strays ends the sessions with transactions older than after.
func strays(ctx context.Context, db *sql.DB, after time.Duration) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	err = db.QueryRowContext(ctx, queryStrays, after.Seconds()).Scan(&n)
	return n, err
}
