package matching_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-events-analyzer/decision"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// TestBacklogIsEvaluatedOnce: the first delivery of a node reads all that waits
// for it and evaluates that; the deliveries that follow cost no further evaluation,
// unless they bring what the window does not have.
func TestBacklogIsEvaluatedOnce(t *testing.T) {
	b := newBench(t, storetest.SQLite(t), 1000)
	const waiting = 20
	var ids []string
	add := func(at time.Duration) {
		r := storetest.Record("n1", func(r *record.Record) {
			r.CreatedAt = testkit.Start.Add(at - time.Hour)
			r.Event.GeneratedTimestamp, r.Event.ErrorCode = r.CreatedAt, []string{"31"}
			r.Event.EntitiesImpacted = []record.Entity{{EntityType: "GPU_UUID", EntityValue: "GPU-1"}}
		})
		storetest.MustAppend(t, b.store, r)
		ids = append(ids, r.ID)
	}
	deliver := func(id string) {
		b.Trigger(storetest.MustGet(t, b.store, id))
		b.handle("n1")
	}
	evaluated := func() (n float64) {
		for _, reason := range decision.Reasons() {
			n += testutil.ToFloat64(b.metrics.Evaluations.WithLabelValues(rules()[0].Name, string(reason)))
		}
		return n
	}
	for i := range waiting {
		add(time.Duration(i) * time.Minute)
	}
	for _, id := range ids {
		deliver(id)
	}
	if n := evaluated(); n != waiting {
		t.Errorf("%g judgements of %d events", n, waiting)
	}
	// One that is earlier than the last three changes their answers, too.
	add(waiting*time.Minute - 3*time.Minute - time.Second)
	deliver(ids[waiting])
	deliver(ids[0])
	if n := evaluated(); n != waiting+4 {
		t.Errorf("%g judgements after a late event, want %d", n, waiting+4)
	}
}
