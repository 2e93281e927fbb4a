package matching_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-events-analyzer/internal/matching"
	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
	"github.com/nvidia/nvsentinel/internal/report"
	"github.com/nvidia/nvsentinel/internal/report/reporttest"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// rules is the one rule of these tests: XID 31 on two GPUs.
func rules() []rule.Rule {
	return slices.DeleteFunc(rule.Default(), func(r rule.Rule) bool { return r.Name != "RepeatedXID31OnDifferentGPU" })
}

type bench struct {
	*matching.Matcher
	t         *testing.T
	store     store.Store
	connector *reporttest.Connector
	metrics   *matching.Metrics
	registry  *prometheus.Registry
	clock     *testkit.Clock
}

// cached is how many events are in memory.
func (b *bench) cached() float64 {
	b.t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "nvsentinel_analyzer_cached_events" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	b.t.Fatal("no such metric")
	return 0
}

func newBench(t *testing.T, s store.Store, cached int) *bench {
	t.Helper()
	return newBenchOf(t, s, cached, rules())
}

func newBenchOf(t *testing.T, s store.Store, cached int, rules []rule.Rule) *bench {
	t.Helper()
	connector := reporttest.Start(t)
	conn, err := report.Dial(connector.Target(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	registry, clock := prometheus.NewRegistry(), testkit.NewClock()
	metrics := matching.NewMetrics(registry)
	return &bench{t: t, store: s, connector: connector, registry: registry, metrics: metrics, clock: clock, Matcher: matching.New(matching.Options{
		Records: s, Connector: protos.NewPlatformConnectorClient(conn), Rules: rules, Strategy: record.Process, CachedEvents: cached,
		Clock: clock, Log: slog.New(slog.DiscardHandler), Metrics: metrics,
	})}
}

// fault stores XID 31 and delivers it as the feed does.
func (b *bench) fault(node, gpu string, strategy record.Strategy) (enqueued string) {
	b.t.Helper()
	r := storetest.Record(node, func(r *record.Record) {
		r.CreatedAt = testkit.Start.Add(-time.Minute)
		r.Event.GeneratedTimestamp, r.Event.ErrorCode, r.Event.ProcessingStrategy = r.CreatedAt, []string{"31"}, strategy
		r.Event.EntitiesImpacted = []record.Entity{{EntityType: "GPU_UUID", EntityValue: gpu}}
	})
	storetest.MustAppend(b.t, b.store, r)
	return b.Trigger(storetest.MustGet(b.t, b.store, r.ID))
}

func (b *bench) handle(node string) {
	b.t.Helper()
	if err := b.Handle(b.t.Context(), node); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) derived() int { return len(b.connector.Distinct(b.t)) }

// TestPersistOnlyNeverTriggers: even if the feed lets it through.
func TestPersistOnlyNeverTriggers(t *testing.T) {
	b := newBench(t, storetest.SQLite(t), 1000)
	if enqueued := b.fault("n1", "GPU-1", record.PersistOnly); enqueued != "" {
		t.Errorf("enqueued %q", enqueued)
	}
	if n := testutil.CollectAndCount(b.metrics.Received); n != 0 {
		t.Error("it is counted as a trigger")
	}
	if enqueued := b.fault("n1", "GPU-1", record.Process); enqueued != "n1" {
		t.Errorf("a PROCESS event enqueued %q", enqueued)
	}
}

// TestPersistOnlyIsInNoWindow: neither read from the store nor taken as a cause.
func TestPersistOnlyIsInNoWindow(t *testing.T) {
	b := newBench(t, storetest.SQLite(t), 1000)
	b.fault("n1", "GPU-1", record.PersistOnly)
	b.fault("n1", "GPU-2", record.Process)
	b.handle("n1")
	if n := b.derived(); n != 0 {
		t.Errorf("%d events are derived with the help of one for the record", n)
	}
	b.fault("n1", "GPU-3", record.Process)
	b.handle("n1")
	if n := b.derived(); n != 1 {
		t.Errorf("%d events are derived of two that act", n)
	}
}

// TestPersistOnlyHoldsNothingOpen: a derived fault whose sources were for the
// record only has no cause, and is over.
func TestPersistOnlyHoldsNothingOpen(t *testing.T) {
	b := newBench(t, storetest.SQLite(t), 1000)
	for gpu, strategy := range map[string]record.Strategy{"GPU-1": record.PersistOnly, "GPU-2": record.Process} {
		source := storetest.Record("n1", func(r *record.Record) { r.Event.ProcessingStrategy = strategy })
		derived := storetest.Record("n1", func(r *record.Record) {
			r.Event.Agent, r.Event.CheckName = record.AnalyzerAgent, rules()[0].Name
			r.Event.Metadata = map[string]string{"sources": source.ID, "clear": string(rule.WhenSourcesClose), "subject": gpu}
		})
		storetest.MustAppend(t, b.store, source, derived)
	}
	b.handle("n1")
	if n := b.derived(); n != 1 {
		t.Errorf("%d of two derived faults are over, want the one without a cause that acts", n)
	}
}

// TestDroppedWindows: with a capacity of 0 every handling reads the store again, and finds
// the same.
func TestDroppedWindows(t *testing.T) {
	b := newBench(t, storetest.SQLite(t), 0)
	for i := range 3 {
		for n := range 5 {
			node := fmt.Sprint("n", n)
			b.fault(node, fmt.Sprint("GPU-", i), record.Process)
			b.handle(node)
		}
	}
	if n := b.derived(); n != 5 {
		t.Errorf("%d events are derived on 5 nodes", n)
	}
}

// TestAnAnswerThatIsLost: the connector took the event and its answer is lost;
// the same event is sent again.
func TestAnAnswerThatIsLost(t *testing.T) {
	b := newBench(t, storetest.SQLite(t), 1000)
	b.fault("n1", "GPU-1", record.Process)
	b.fault("n1", "GPU-2", record.Process)
	var sent []string
	b.connector.Refuse(func(in *protos.HealthEvents) error {
		sent = append(sent, in.GetEvents()[0].GetId())
		if len(sent) == 1 {
			return status.Error(codes.Unavailable, "cut")
		}
		return nil
	})
	if err := b.Handle(t.Context(), "n1"); err == nil {
		t.Fatal("a publication that failed is settled")
	}
	b.handle("n1")
	b.handle("n1")
	if len(sent) != 2 || sent[0] != sent[1] {
		t.Errorf("sent %v", sent)
	}
}

// deadLetters is a store that keeps dead letters where a test sees them.
type deadLetters struct {
	store.Store
	letters []store.DeadLetter
}

func (d *deadLetters) Dead(_ context.Context, deadLetter store.DeadLetter) error {
	d.letters = append(d.letters, deadLetter)
	return nil
}

// TestARefusedEventHoldsUpNothing: it becomes a dead letter.
func TestARefusedEventHoldsUpNothing(t *testing.T) {
	s := &deadLetters{Store: storetest.SQLite(t)}
	b := newBench(t, s, 1000)
	b.connector.Refuse(func(*protos.HealthEvents) error {
		return status.Error(codes.InvalidArgument, "events[0].agent: is empty")
	})
	b.fault("n1", "GPU-1", record.Process)
	b.fault("n1", "GPU-2", record.Process)
	b.handle("n1")
	if len(s.letters) != 1 || s.letters[0].Source != record.AnalyzerAgent || len(s.letters[0].Body) == 0 {
		t.Errorf("dead letters %+v", s.letters)
	}
}

// TestARuleOfAnotherAgentHoldsUpNoOther: the event of a rule whose name is another agent's
// is a dead letter, and the other rule's event of the same node is published.
func TestARuleOfAnotherAgentHoldsUpNoOther(t *testing.T) {
	s := &deadLetters{Store: storetest.SQLite(t)}
	foreign, good := rules()[0], rules()[0]
	foreign.Name = "GpuTwice"
	b := newBenchOf(t, s, 1000, []rule.Rule{foreign, good})
	b.connector.Answer(func(e *protos.HealthEvent) *protos.HealthEventResult {
		if e.GetCheckName() == foreign.Name {
			return &protos.HealthEventResult{Outcome: protos.HealthEventOutcome_HEALTH_EVENT_OUTCOME_REJECTED, Problem: "it belongs to another agent"}
		}
		return &protos.HealthEventResult{Outcome: protos.HealthEventOutcome_HEALTH_EVENT_OUTCOME_ACCEPTED}
	})
	b.fault("n1", "GPU-1", record.Process)
	b.fault("n1", "GPU-2", record.Process)
	began := time.Now()
	b.handle("n1")
	t.Logf("beside a rejected rule an event was published within %s", time.Since(began))
	if got := b.connector.Distinct(t); len(got) != 1 || got[0].GetCheckName() != good.Name {
		t.Errorf("published %v", got)
	}
	if len(s.letters) != 1 || s.letters[0].Reason != "it belongs to another agent" {
		t.Errorf("dead letters %+v", s.letters)
	}
}
