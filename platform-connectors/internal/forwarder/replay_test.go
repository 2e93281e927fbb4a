package forwarder_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/platform-connectors/conditions"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/forwarder"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

func recordOf(id string, edit func(*record.Event)) record.Record {
	return storetest.Record("n1", func(r *record.Record) {
		r.Seq, r.SeqEpoch = 7, "e"
		e := &r.Event
		e.IsFatal, e.IsHealthy, e.ProcessingStrategy, e.CheckName = true, false, record.Process, id
		e.Metadata = map[string]string{record.MetadataSeq: "7", record.MetadataSeqEpoch: "e", record.MetadataBootID: "b1", "more": "of it"}
		edit(e)
	})
}

// TestLostFaultsAreReplayed: of the faults that the Node names as unknown, those
// that stand are appended under their ids; a store that has them takes them for
// the same, one that has not can evaluate and clear them as before.
func TestLostFaultsAreReplayed(t *testing.T) {
	lost := recordOf("SysLogsXIDError", func(e *record.Event) {
		e.ErrorCode = []string{"79", "48"}
		e.EntitiesImpacted = []record.Entity{{EntityType: "GPU_UUID", EntityValue: "GPU-1"}, {EntityType: "PCI", EntityValue: "0000:3b:00"}, {EntityType: "NVLINK", EntityValue: "3"}}
	})
	other := recordOf("Other", func(e *record.Event) { e.EntitiesImpacted, e.ErrorCode = nil, nil })
	set := &conditions.Set{}
	for _, r := range []record.Record{lost, other} {
		if got := set.Fold(r); got != conditions.Raised {
			t.Fatalf("folded: %s", got)
		}
	}
	whole, emptied := storetest.SQLite(t), storetest.SQLite(t)
	storetest.MustAppend(t, whole, lost, other)
	for name, s := range map[string]store.Store{"whole": whole, "emptied": emptied} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{}
			node.Annotations = map[string]string{nodemark.UnknownAnnotation: lost.ID + ",of another publisher"}
			clock, registry := testkit.NewClock(), prometheus.NewRegistry()
			r := forwarder.Replayer{
				Node: func() *corev1.Node { return node }, Stored: set.Stored, Sink: s, Clock: clock, Log: slog.New(slog.DiscardHandler),
			}
			r.Register(registry)
			wake := r.Waker()
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- r.Run(ctx) }()
			wake()
			testkit.Until(t, 2*time.Minute, func() bool { return counted(t, registry) > 0 })
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			check(t, storetest.MustGet(t, s, lost.ID), lost)
			if _, err := s.Get(t.Context(), other.ID); (err == nil) != (name == "whole") {
				t.Errorf("a fault that nobody asked for: %v", err)
			}
		})
	}
}

// TestARefusalIsReportedOnce: the store has the id with other content of the same node.
// The fault becomes a dead letter, is counted, and is not appended again.
func TestARefusalIsReportedOnce(t *testing.T) {
	lost := recordOf("SysLogsXIDError", func(e *record.Event) { e.ErrorCode = []string{"79"} })
	set := &conditions.Set{}
	set.Fold(lost)
	s := storetest.SQLite(t)
	taken := lost
	taken.Event.Message = "another"
	storetest.MustAppend(t, s, taken)
	node := &corev1.Node{}
	node.Name, node.Annotations = "n1", map[string]string{nodemark.UnknownAnnotation: lost.ID}
	clock, registry := testkit.NewClock(), prometheus.NewRegistry()
	r := forwarder.Replayer{
		Node: func() *corev1.Node { return node }, Stored: set.Stored, Sink: s, Clock: clock, Log: slog.New(slog.DiscardHandler),
	}
	r.Register(registry)
	wake := r.Waker()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	wake()
	testkit.Until(t, 2*time.Minute, func() bool { return value(t, registry, "nvsentinel_connector_fault_resyncs_refused_total") == 1 })
	for range 3 {
		clock.Step(2 * time.Minute)
		wake()
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	letters, err := s.DeadLetters(t.Context(), forwarder.DeadLettersOf("n1"))
	if err != nil || len(letters) != 1 || letters[0].ID != lost.ID || !strings.Contains(letters[0].Reason, "stays in quarantine until manual intervention:") {
		t.Errorf("dead letters %+v, %v", letters, err)
	}
	if appended, refused := value(t, registry, "nvsentinel_connector_fault_resyncs_total"), value(t, registry, "nvsentinel_connector_fault_resyncs_refused_total"); appended != 0 || refused != 1 {
		t.Errorf("%v appended, %v refused", appended, refused)
	}
}

// TestAFaultIsKnownByItsAlias: the store keeps it under another id, which the Node
// displays; when that is lost, too, the fault is replayed.
func TestAFaultIsKnownByItsAlias(t *testing.T) {
	lost := recordOf("SysLogsXIDError", func(e *record.Event) { e.ErrorCode = []string{"79"} })
	set := &conditions.Set{}
	set.Fold(lost)
	got := set.Stored([]string{record.Alias("n1", lost.ID), record.Alias("n2", lost.ID)})
	if len(got) != 1 || got[0].ID != lost.ID {
		t.Errorf("stored again: %+v", got)
	}
}

// check compares a record with what was stored first.
func check(t *testing.T, got, want record.Record) {
	t.Helper()
	keys := func(r record.Record) (out []string) {
		for _, e := range fault.Entries(r.Event) {
			out = append(out, e.Key)
		}
		return out
	}
	if diff := cmp.Diff(keys(want), keys(got)); diff != "" {
		t.Errorf("entries:\n%s", diff)
	}
	if record.Content(got) != record.Content(want) || got.Seq != want.Seq || got.Event.BootID() != want.Event.BootID() ||
		got.Event.RecommendedAction != want.Event.RecommendedAction || !got.CreatedAt.Equal(want.CreatedAt) || got.Node != want.Node {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func counted(t *testing.T, registry *prometheus.Registry) float64 {
	return value(t, registry, "nvsentinel_connector_fault_resyncs_total")
}

func value(t *testing.T, registry *prometheus.Registry, name string) float64 {
	families, err := registry.Gather()
	if err != nil {
		t.Error(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return 0
}

// beyond is a store behind a gateway, beyond the node's quota at first.
type beyond struct {
	store.Store
	counts int
}

func (b *beyond) Append(ctx context.Context, records []record.Record) ([]store.AppendResult, error) {
	if b.counts--; b.counts >= 0 {
		return []store.AppendResult{store.Counted}, nil
	}
	return b.Store.Append(ctx, records)
}

// TestCountedFaultIsReplayed: a gateway counts what the store has lost for a repeat. It
// is not stored, and brought until it is.
func TestCountedFaultIsReplayed(t *testing.T) {
	lost := recordOf("SysLogsXIDError", func(e *record.Event) { e.ErrorCode = []string{"79"} })
	set := &conditions.Set{}
	set.Fold(lost)
	s := storetest.SQLite(t)
	node := &corev1.Node{}
	node.Annotations = map[string]string{nodemark.UnknownAnnotation: lost.ID}
	clock, registry := testkit.NewClock(), prometheus.NewRegistry()
	r := forwarder.Replayer{
		Node: func() *corev1.Node { return node }, Stored: set.Stored, Sink: &beyond{Store: s, counts: 2}, Clock: clock, Log: slog.New(slog.DiscardHandler),
	}
	r.Register(registry)
	wake := r.Waker()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	testkit.Until(t, 2*time.Minute, func() bool {
		clock.Step(2 * time.Minute)
		wake()
		again := value(t, registry, "nvsentinel_connector_fault_resyncs_total")
		_, err := s.Get(t.Context(), lost.ID)
		if err != nil && again > 0 {
			t.Errorf("%v are said to be stored again, and none is", again)
		}
		return err == nil
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
