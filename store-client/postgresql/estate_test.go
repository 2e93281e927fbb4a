package postgresql_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// estate is a database as an operator sets it up: an owner that is no superuser
// but may make roles, whose services made the tables.
type estate struct {
	owner    string // its address
	name     string // of the database, by which the test's own accounts begin
	services store.Store
}

func newEstate(t *testing.T) estate {
	t.Helper()
	name, dsn := pgtest.Database(t)
	server := pgtest.Shared(t)
	err := server.Exec(t.Context(), name, "CREATE ROLE "+name+"_owner LOGIN CREATEROLE; ALTER DATABASE "+name+" OWNER TO "+name+"_owner; ALTER SCHEMA public OWNER TO "+name+"_owner")
	if err != nil {
		t.Fatal(err)
	}
	e := estate{owner: as(t, dsn, name+"_owner"), name: name}
	e.services = storetest.Open(t, e.owner, storeopen.Options{})
	return e
}

// as is the address for another user.
func as(t *testing.T, dsn, user string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("user", user)
	u.RawQuery = q.Encode()
	return u.String()
}

// login is a connection of its own, without anything that ours set.
func login(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conf, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	delete(conf.RuntimeParams, "nvsentinel_allow_unsafe")
	conf.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	c, err := pgx.ConnectConfig(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) }) // the server may have ended it
	return c
}

func exec(t *testing.T, dsn, statements string) {
	t.Helper()
	if _, err := login(t, dsn).Exec(t.Context(), statements); err != nil {
		t.Fatalf("%.200s: %v", statements, err)
	}
}
