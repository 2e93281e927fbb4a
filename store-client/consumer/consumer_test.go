package consumer_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/store-client/consumer"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// late is a store in which another writer is faster to be heard of than the update is
// to return.
type late struct {
	store.Store
	meanwhile func()
}

func (l late) Update(ctx context.Context, w record.Writer, changes []store.Change) ([]record.Record, error) {
	after, err := l.Store.Update(ctx, w, changes)
	l.meanwhile()
	return after, err
}

// TestOwnWritesAreNotDelivered: the very record that was written enqueues nobody, one that
// somebody else wrote right after does, and one that came during the write is reported.
func TestOwnWritesAreNotDelivered(t *testing.T) {
	s := storetest.SQLite(t)
	heard := func() {}
	own := &consumer.Records{Store: late{s, func() { heard() }}, Writer: record.NodeDrainer}
	service := &consumer.Service{Name: "drains", Metrics: consume.Names{Namespace: "drains", Handling: "drains_event_handling_duration_seconds", Depth: "drains_queue_depth"}, Store: s, Own: own}
	key := service.Loop(&daemon.Daemon{Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry()}).Key
	r := storetest.Record("n1")
	storetest.MustAppend(t, s, r)
	write := func() (news bool) {
		now := storetest.MustGet(t, s, r.ID)
		now.Status.UserPodsEvictionStatus.Message += "."
		news, err := own.Write(t.Context(), []store.Change{{ID: r.ID, Revision: now.Revision, Status: now.Status}})
		if err != nil {
			t.Fatal(err)
		}
		return news
	}
	if write() {
		t.Error("the own write is news")
	}
	mine := storetest.MustGet(t, s, r.ID)
	if got := key(mine); got != "" {
		t.Errorf("the own write enqueues %q", got)
	}
	if got := key(mine); got != "n1" {
		t.Errorf("what comes again enqueues %q", got)
	}
	heard = func() {
		other := storetest.MustGet(t, s, r.ID)
		other.Revision++
		if got := key(other); got != "" {
			t.Errorf("while the write is under way news enqueue %q", got)
		}
	}
	if !write() {
		t.Error("what came during the write is no news")
	}
}

// TestOpen enqueues the nodes of open records of each selector, page by page.
func TestOpen(t *testing.T) {
	s := storetest.SQLite(t)
	var all []record.Record
	for i := range store.PageRecords + 3 {
		all = append(all, storetest.Record(fmt.Sprintf("n%03d", i)))
	}
	storetest.MustAppend(t, s, all...)
	var enqueued []string
	open := func(r record.Record) bool { return r.Event.NodeName != "n000" }
	backlog := consumer.Open(s, open, record.Selector{Name: "all"}, record.Selector{Name: "one", Node: "n001"})
	if err := backlog(t.Context(), func(node string) { enqueued = append(enqueued, node) }); err != nil {
		t.Fatal(err)
	}
	if len(enqueued) != len(all)-1+1 || slices.Contains(enqueued, "n000") || enqueued[len(enqueued)-1] != "n001" {
		t.Errorf("%d of %d nodes are enqueued", len(enqueued), len(all))
	}
}

// shelf is a cache that the test fills.
type shelf struct{ running, filled chan struct{} }

func (s shelf) Run(ctx context.Context) error {
	close(s.running)
	<-ctx.Done()
	return nil
}

func (s shelf) WaitForSync(ctx context.Context) error {
	select {
	case <-s.filled:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestALeaderFillsItsCachesFirst: they run from the moment it leads, and nothing is read
// from the store before they are filled; one that stops meanwhile ends without an error.
func TestALeaderFillsItsCachesFirst(t *testing.T) {
	for name, fills := range map[string]bool{"filled": true, "stopped before": false} {
		t.Run(name, func(t *testing.T) {
			s := shelf{make(chan struct{}), make(chan struct{})}
			read := make(chan struct{}, 1)
			service := &consumer.Service{
				Name: "drains", Metrics: consume.Names{Namespace: "drains", Handling: "drains_event_handling_duration_seconds", Depth: "drains_queue_depth"}, Store: storetest.SQLite(t), Selector: record.NodeQuarantineStatus(),
				Reconcile: func(context.Context, string) error { return nil },
				Backlog:   func(context.Context, func(string)) error { read <- struct{}{}; return nil },
			}
			r := daemon.RunForTest(t, "drains", struct{}{}, func(_ context.Context, d *daemon.Daemon, _ struct{}) error {
				consumer.Lead(d, consumer.Election{Lease: lease.Default(), Task: "drains", Caches: []consumer.Cache{s}}, service)
				return nil
			})
			<-s.running
			select {
			case <-read:
				t.Error("the store was read before the cache was filled")
			default:
			}
			if fills {
				close(s.filled)
				<-read
			}
			if code := r.Stop(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}
