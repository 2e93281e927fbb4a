package postgresql_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/internal/cutproxy"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// TestConnectionsAreKept: what a burst of work opened serves the next one. To
// connect to a distant server takes longer than the work.
func TestConnectionsAreKept(t *testing.T) {
	_, dsn := pgtest.Database(t)
	var opened atomic.Int32
	p, err := cutproxy.Start(cutproxy.Late(func(ctx context.Context) (net.Conn, error) {
		opened.Add(1)
		return pgtest.Shared(t).Dial(ctx)
	}, 5*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	s := storetest.Open(t, through(t, p, dsn), storeopen.Options{})
	for range 4 {
		var burst sync.WaitGroup
		for range 20 {
			burst.Go(func() {
				if _, err := s.Get(t.Context(), "none"); !errors.Is(err, store.ErrNotFound) {
					t.Error(err)
				}
			})
		}
		burst.Wait()
	}
	if n := opened.Load(); n > 10 {
		t.Errorf("%d connections were opened, at most 10 at once", n)
	}
}
