package mongotest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// shared is the server of the test process: one start, one database per test.
var shared struct {
	server *Server
	uri    string // of a server that is not ours
	none   error
	count  atomic.Int64
}

// Main runs a package's tests with one server for all of them and stops it. Where no server
// is available, the tests that need one are skipped with the reason; a server that starts
// and misbehaves is a failure.
func Main(m *testing.M) int {
	if shared.uri = os.Getenv(URI); shared.uri != "" {
		return m.Run()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	s, err := Start(ctx, Options{})
	if errors.Is(err, ErrNone) {
		shared.none = err
		return m.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting MongoDB for the tests:", err)
		return 1
	}
	shared.server = s
	code := m.Run()
	if err := s.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping MongoDB:", err)
		return 1
	}
	return code
}

// Need skips a test where there is no server to be had.
func Need(t testing.TB) {
	t.Helper()
	if shared.none != nil {
		t.Skip(shared.none)
	}
}

// Addr is where the shared server listens, host:port; empty for one that is not
// ours.
func Addr(t testing.TB) string {
	t.Helper()
	Need(t)
	if shared.server == nil {
		return ""
	}
	return shared.server.Addr()
}

// Database names a new database on the shared server and returns its address;
// it is dropped with the test.
func Database(t testing.TB) string {
	t.Helper()
	Need(t)
	name := fmt.Sprintf("nvsentinel-test-%d-%d", os.Getpid(), shared.count.Add(1))
	address := ""
	if shared.server != nil {
		address = shared.server.DSN(name)
	} else {
		u, err := url.Parse(shared.uri)
		if err != nil {
			t.Fatalf("%s: %v", URI, err)
		}
		u.Path = "/" + name
		address = u.String()
	}
	t.Cleanup(func() { drop(t, address, name) })
	return address
}

func drop(t testing.TB, address, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	client, err := mongo.Connect(options.Client().ApplyURI(address))
	if err == nil {
		err = errors.Join(client.Database(name).Drop(ctx), client.Disconnect(ctx))
	}
	if err != nil {
		t.Errorf("dropping the database %s: %v", name, err)
	}
}
