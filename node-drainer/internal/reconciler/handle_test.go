package reconciler

import (
	"context"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/eviction"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/node-drainer/decision"
	"github.com/nvidia/nvsentinel/store-client/consumer"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// one is a store of one record.
type one struct {
	store.Store
	record record.Record
	lists  int
	// meanwhile happens while an update is under way.
	meanwhile func(r record.Record)
}

func (o *one) List(_ context.Context, q store.Query) ([]record.Record, error) {
	if q.Selector.Name == PendingEvaluation().Name {
		return nil, nil
	}
	o.lists++
	return []record.Record{o.record}, nil
}

func (o *one) Update(_ context.Context, _ record.Writer, changes []store.Change) ([]record.Record, error) {
	for _, c := range changes {
		if c.Revision != o.record.Revision {
			return nil, store.ErrConflict
		}
		o.record.Status = c.Status
		o.record.Revision++
	}
	o.meanwhile(o.record)
	return []record.Record{o.record}, nil
}

// quarantined is a drainer of one node without pods, whose record was evaluated.
func quarantined(t *testing.T) (*Reconciler, *one) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{nodemark.SessionAnnotation: "r1"}}}
	node.Spec.Unschedulable = true
	client := fake.NewClientset(node)
	cluster, err := NewCluster(client)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = cluster.Run(t.Context()) }()
	if err := cluster.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	records := &one{meanwhile: func(record.Record) {}}
	records.record = record.Record{ID: "r1", Revision: 1, Event: record.Event{NodeName: "n", ProcessingStrategy: record.Process}}
	records.record.Status = record.Status{
		NodeQuarantined: record.Quarantined, Session: "r1", Faults: []record.Fault{{Key: "k"}},
		QuarantineVerdict: &record.Verdict{Reason: record.Matched, Effects: record.Effects{Cordon: true}},
	}
	return New(Config{Policy: decision.DefaultPolicy(eviction.Policy{})}, Deps{
		Records: &consumer.Records{Store: records, Writer: record.NodeDrainer}, Client: client, Cluster: cluster, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler),
		Metrics: NewMetrics(prometheus.NewRegistry()),
	}), records
}

// TestChangeAfterStatusUpdateIsHandled: the feed's deliveries wait for the end
// of the update; one that is not its own has the node looked at once more, twice
// being what the end of a drain takes by itself.
func TestChangeAfterStatusUpdateIsHandled(t *testing.T) {
	for name, tt := range map[string]struct {
		later int64 // revisions after the update's own
		looks int
	}{"its own": {0, 2}, "another writer's": {1, 3}} {
		t.Run(name, func(t *testing.T) {
			d, records := quarantined(t)
			loop := d.Service("node-drainer", 1).Loop(&daemon.Daemon{Clock: clock.RealClock{}, Log: d.log, Registry: prometheus.NewRegistry()})
			records.meanwhile = func(r record.Record) {
				r.Revision += tt.later
				if key := loop.Key(r); key != "" {
					t.Errorf("%s is enqueued while its record is written", key)
				}
			}
			_, why, parked := retry.AsPark(d.Handle(t.Context(), "n"))
			if !parked || why != string(decision.KeepingEmpty) {
				t.Errorf("parked %t: %q, want to keep the node empty", parked, why)
			}
			if records.lists != tt.looks {
				t.Errorf("the records were read %d times, want %d", records.lists, tt.looks)
			}
		})
	}
}

// TestALostRaceForARecordIsTriedAgainSoon: somebody wrote the record after it
// was read.
func TestALostRaceForARecordIsTriedAgainSoon(t *testing.T) {
	d, records := quarantined(t)
	d.records.Store = raced{records}
	if _, why, waits := retry.AsWait(d.Handle(t.Context(), "n")); !waits {
		t.Errorf("%q, want a wait", why)
	}
	if records.record.Status.UserPodsEvictionStatus.Status != record.EvictionUnset {
		t.Error("the loser has written")
	}
}

// raced is a store where somebody writes the record after each read.
type raced struct{ *one }

func (r raced) List(ctx context.Context, q store.Query) ([]record.Record, error) {
	records, err := r.one.List(ctx, q)
	r.record.Revision++
	return records, err
}
