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
	"github.com/nvidia/nvsentinel/internal/daemon"
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

// TestOwnWritesAreNoNews: the very record that was written enqueues nobody, one that
// somebody else wrote right after does, and one that came during the write is told of.
func TestOwnWritesAreNoNews(t *testing.T) {
	s := storetest.SQLite(t)
	heard := func() {}
	own := &consumer.Records{Store: late{s, func() { heard() }}, Writer: record.NodeDrainer}
	service := &consumer.Service{Name: "drains", Metrics: "drains", Store: s, Own: own}
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
