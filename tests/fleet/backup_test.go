package fleet

import (
	"context"
	"testing"

	"github.com/nvidia/nvsentinel/store-client/pgtest"
)

// TestAForeignTransactionWaitsForTheServer: the server is away when somebody
// else's transaction is to begin, and once more while it is open.
func TestAForeignTransactionWaitsForTheServer(t *testing.T) {
	server := pgtest.Own(t, pgtest.Options{})
	f := &Fleet{server: server, options: Options{Store: "postgresql"}}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	type held struct {
		end func(context.Context) error
		err error
	}
	opened := make(chan held, 1)
	go func() {
		end, err := f.HoldTransaction(t.Context())
		opened <- held{end, err}
	}()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := <-opened
	if h.err != nil {
		t.Fatal(h.err)
	}
	if n := openTransactions(t, server); n != 1 {
		t.Errorf("%d transactions are open, want 1", n)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.end(t.Context()); err != nil {
		t.Errorf("ending what the server has ended: %v", err)
	}
	// The next one does not wait for what the first has left.
	end, err := f.HoldTransaction(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := end(t.Context()); err != nil {
		t.Error(err)
	}
}

// openTransactions counts those that have written in another database.
func openTransactions(t *testing.T, server *pgtest.Server) (n int) {
	t.Helper()
	conn, err := server.Connect(t.Context(), "postgres")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	err = conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND datname = 'template1'").Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
