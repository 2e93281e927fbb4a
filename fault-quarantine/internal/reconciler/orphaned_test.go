package reconciler_test

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/internal/reconciler"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// gauge adds up a gauge of a registry.
func gauge(t *testing.T, r *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// TestOrphanedFaultIsReportedOnce: in a metric as long as it is
// open, and in one Event; its observed recovery lifts nothing, a PROCESS one does.
func TestOrphanedFaultIsReportedOnce(t *testing.T) {
	s, nodes := storetest.Open(t, storetest.SQLiteDSN(t), storeopen.Options{}), &fakeNode{node: newNode()}
	d, registry := newReconciler(t, s, nodes), prometheus.NewRegistry()
	d.Metrics = reconciler.NewMetrics(registry)
	reported := map[string]bool{}
	expect := func(open, notes int, when string) {
		t.Helper()
		if err := reconciler.ReportOrphaned(d, t.Context(), reported); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, reason := range nodes.notes {
			if reason == "FaultOrphaned" {
				n++
			}
		}
		if got := gauge(t, registry, "nvsentinel_fault_quarantine_orphaned_faults"); got != float64(open) || n != notes {
			t.Errorf("%s: %v orphaned faults and %d Events, want %d and %d", when, got, n, open, notes)
		}
	}
	say := func(r record.Record, strategy record.Strategy) {
		t.Helper()
		r.Event.ProcessingStrategy = strategy
		storetest.MustAppend(t, s, r)
		handle(t, d)
	}
	say(event(1, false, "79", "GPU-1"), record.Process)
	expect(0, 0, "the publisher says PROCESS")
	say(event(2, true, ""), record.PersistOnly)
	expect(1, 1, "its recovery is PERSIST_ONLY")
	expect(1, 1, "told before")
	if !nodes.node.Spec.Unschedulable || slices.Contains(nodes.notes, "NodeReleased") {
		t.Errorf("an observed recovery released the node: %v", nodes.notes)
	}
	say(event(3, true, ""), record.Process)
	expect(0, 1, "a PROCESS recovery came")
	if nodes.node.Spec.Unschedulable {
		t.Error("a PROCESS recovery left the node cordoned")
	}
}
