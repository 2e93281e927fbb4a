package pgtest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// shared is the server of the test process: one start, by the first test that asks for
// it, and one database per test.
var shared struct {
	sync.Mutex
	inMain bool
	server *Server
	count  atomic.Int64
}

// Main runs a package's tests with one server for all that ask for one, and stops it:
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
func Main(m *testing.M) int {
	shared.inMain = true
	code := m.Run()
	if shared.server == nil {
		return code
	}
	if err := shared.server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping PostgreSQL:", err)
		return 1
	}
	return code
}

// Own starts a server for one test, which may kill or reconfigure it, and stops it
// with the test.
func Own(t testing.TB, o Options) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	s, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	s.stopWith(t)
	return s
}

// OwnStandby starts an asynchronous standby of the server, which follows it, and
// stops it with the test.
func (s *Server) OwnStandby(t testing.TB) *Server {
	t.Helper()
	standby, err := s.Standby(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	standby.stopWith(t)
	return standby
}

func (s *Server) stopWith(t testing.TB) {
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("stopping PostgreSQL: %v", err)
		}
	})
}

// Shared is the server of Main, which the first call starts.
func Shared(t testing.TB) *Server {
	t.Helper()
	if !shared.inMain {
		t.Fatal("the package's TestMain does not call pgtest.Main")
	}
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		return shared.server
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	s, err := Start(ctx, Options{})
	if err != nil {
		t.Fatalf("starting PostgreSQL for the tests: %v", err)
	}
	shared.server = s
	return s
}

// Database makes a new database on the server of Main and returns its name and
// address.
func Database(t testing.TB) (name, dsn string) {
	t.Helper()
	name = fmt.Sprintf("test%d", shared.count.Add(1))
	dsn, err := Shared(t).CreateDatabase(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return name, dsn
}
