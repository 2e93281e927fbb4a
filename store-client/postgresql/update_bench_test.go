package postgresql_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/cutproxy"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// BenchmarkUpdates has callers update the status of records concurrently, each its own
// record again and again, on a server that syncs: beside it, and a millisecond away, where
// the time of one caller counts the round trips.
func BenchmarkUpdates(b *testing.B) {
	server := pgtest.Own(b, pgtest.Options{Durable: true})
	for _, oneWay := range []time.Duration{0, 500 * time.Microsecond} {
		for _, callers := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("%d callers, %v away", callers, oneWay), func(b *testing.B) {
				s := storetest.Open(b, distant(b, server, oneWay), storeopen.Options{})
				changes := appended(b, s, callers)
				b.ResetTimer()
				updateAll(b, s, changes)
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "stamps/s")
			})
		}
	}
}

// updateAll makes b.N status updates in as many goroutines as there are changes.
func updateAll(b *testing.B, s store.Store, changes []store.Change) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(b.N))
	done := make(chan error, len(changes))
	for _, c := range changes {
		go func() {
			var err error
			for ; err == nil && left.Add(-1) >= 0; c.Revision++ {
				_, err = s.Update(b.Context(), record.FaultQuarantine, []store.Change{c})
			}
			done <- err
		}()
	}
	for range changes {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}

// distant is the address of a new database of the server, which answers later.
func distant(b *testing.B, server *pgtest.Server, oneWay time.Duration) string {
	b.Helper()
	dsn, err := server.CreateDatabase(b.Context(), fmt.Sprintf("bench%d", time.Now().UnixNano()))
	if err != nil {
		b.Fatal(err)
	}
	if oneWay == 0 {
		return dsn
	}
	p, err := cutproxy.Start(cutproxy.Late(func(ctx context.Context) (net.Conn, error) { return server.Dial(ctx) }, oneWay))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := p.Close(); err != nil {
			b.Error(err)
		}
	})
	return through(b, p, dsn)
}
