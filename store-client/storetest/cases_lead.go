package storetest

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/store-client/consumer"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// replica is one of a service's, which handles each record by itself.
type replica struct {
	loop *consume.Loop[record.Record]

	mu      sync.Mutex
	handled []string
	changes chan struct{}
}

func newReplica(s store.Store) *replica {
	r := &replica{changes: make(chan struct{}, 1)}
	service := &consumer.Service{
		Name: "service", Metrics: consume.Names{
			Namespace: "service", Handling: "service_event_handling_duration_seconds",
			Depth: "service_queue_depth",
		}, Store: s, Selector: everyChange(), Key: func(r record.Record) string { return r.ID },
		Reconcile: func(_ context.Context, id string) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.handled = append(r.handled, id)
			select {
			case r.changes <- struct{}{}:
			default:
			}
			return nil
		},
	}
	r.loop = service.Loop(&daemon.Daemon{Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry()})
	return r
}

// lead has a replica lead until it has handled so many records.
func (r *replica) lead(t *testing.T, n int) {
	t.Helper()
	ctx, cancel := context.WithCancel(within(t))
	ended := make(chan error, 1)
	go func() { ended <- r.loop.Run(ctx) }()
	for {
		r.mu.Lock()
		done := len(r.handled) >= n
		r.mu.Unlock()
		if done {
			break
		}
		select {
		case <-r.changes:
		case <-ctx.Done():
			t.Fatalf("%d of %d records were handled", len(r.handled), n)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// feedStandby: what the leader before committed is not read again, however long ago the
// replica that leads now was made. Records are stored before a feed is opened: what comes
// while it opens may come twice (store.Feed), and after a restart again.
func feedStandby(t *testing.T, b Backend) {
	_, s := database(t, b)
	first, second := newReplica(s), newReplica(s)
	const before = 20
	MustAppend(t, s, faults(before)...)
	first.lead(t, before)
	last := Record("n")
	MustAppend(t, s, last)
	second.lead(t, 1)
	if len(second.handled) != 1 || second.handled[0] != last.ID {
		t.Errorf("the second leader handled %v, want %s alone", second.handled, last.ID)
	}
}
