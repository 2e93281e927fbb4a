package postgresql_test

import (
	"flag"
	"testing"

	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// records is how many TestKilledWhileAppending appends:
// go test -run TestKilledWhileAppending -args -records 10000.
var records = flag.Int("records", 1000, "records appended by TestKilledWhileAppending")

// SIGKILL for every process of the server in the middle of many appended
// records: every acknowledged one is there once, and every consumer has seen it.
func TestKilledWhileAppending(t *testing.T) {
	server := pgtest.Own(t, pgtest.Options{Durable: true})
	storetest.Killed(t, server, server.DSN("postgres"), *records)
}
