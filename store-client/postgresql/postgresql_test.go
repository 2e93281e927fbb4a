package postgresql_test

import (
	"os"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func TestSmoke(t *testing.T) {
	_, dsn := pgtest.Database(t)
	s := storetest.Open(t, dsn, storeopen.Options{})
	a, b := storetest.Record("n1"), storetest.Record("n2")
	storetest.MustAppend(t, s, a, b)
	f, err := s.Feed(t.Context(), "c", record.ProcessableHealthEventInserts())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	storetest.Receive(t, f, 2)
	go storetest.MustAppend(t, s, storetest.Record("n3"))
	storetest.Receive(t, f, 1)
}
