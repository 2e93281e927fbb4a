package storeopen

import (
	"context"
	"strings"

	"github.com/nvidia/nvsentinel/store-client/internal/sqlstore"
	"github.com/nvidia/nvsentinel/store-client/mongodb"
	"github.com/nvidia/nvsentinel/store-client/postgresql"
	"github.com/nvidia/nvsentinel/store-client/sqlite"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// maintainSQLite opens the file as ever: it has no accounts.
func maintainSQLite(ctx context.Context, dsn string, o Options, cfg sqlstore.Config) (store.Maintenances, error) {
	if !o.SingleHost {
		return nil, errSingleHost
	}
	return maintain(sqlite.Open(ctx, strings.TrimPrefix(dsn, "sqlite://"), cfg))
}

func maintainPostgreSQL(ctx context.Context, dsn string, _ Options, cfg sqlstore.Config) (store.Maintenances, error) {
	return maintain(postgresql.OpenMaintenances(ctx, dsn, cfg))
}

func maintainMongoDB(ctx context.Context, dsn string, _ Options, cfg sqlstore.Config) (store.Maintenances, error) {
	return mongodb.OpenMaintenances(ctx, dsn, mongodb.Config{Log: cfg.Log, Clock: cfg.Clock, Metrics: cfg.Metrics})
}

// maintain keeps a nil pointer from becoming a store that is not nil.
func maintain(s *sqlstore.Store, err error) (store.Maintenances, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}
