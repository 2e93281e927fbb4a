package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/platform-connectors/forwardpolicy"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/authn"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/gateway"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/upstream"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// withQuota is a gateway whose nodes have a quota of so many records a day.
func withQuota(t *testing.T, clk *testkit.Clock, records int64) *hall {
	return newHall(t, func(g *gateway.Gateway, _ *gateway.Limits) {
		g.Clock = clk
		g.Shares = &gateway.Shares{PerSecond: 1 << 30, Burst: 1 << 40, Clock: clk}
		g.Quotas = quotas(g, "one", records)
	})
}

func quotas(g *gateway.Gateway, name string, records int64) *gateway.Quotas {
	days, _ := g.Store.(gateway.Days)
	return gateway.NewQuotas(&gateway.Quotas{
		Limits: forwardpolicy.Quota{Records: records}, Gateway: name, Days: days, Clock: g.Clock, Log: slog.New(slog.DiscardHandler), Metrics: g.Metrics,
	})
}

// fault is an event of a node about a GPU.
func fault(node, gpu string, edit ...func(*record.Record)) record.Record {
	return storetest.Record(node, append([]func(*record.Record){func(r *record.Record) {
		r.Event.EntitiesImpacted = []record.Entity{{EntityType: "GPU", EntityValue: gpu}}
		r.Event.IsFatal, r.Event.ProcessingStrategy = true, record.Process
	}}, edit...)...)
}

func observed(r *record.Record) { r.Event.ProcessingStrategy = record.PersistOnly }

func healthy(r *record.Record) {
	r.Event.IsHealthy, r.Event.IsFatal, r.Event.ErrorCode = true, false, nil
}

// bring appends records one by one and returns what became of each.
func bring(t *testing.T, c *upstream.Gateway, records ...record.Record) (out []store.AppendResult) {
	t.Helper()
	for _, r := range records {
		results, err := c.Append(t.Context(), []record.Record{r})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, results...)
	}
	return out
}

func many(n int, make func(i int) record.Record) (out []record.Record) {
	for i := range n {
		out = append(out, make(i))
	}
	return out
}

// TestBeyondItsQuota a node's observations and repeats are counted, its new faults and
// recoveries are stored, other nodes are not concerned, and the next day is another one.
func TestBeyondItsQuota(t *testing.T) {
	clk := testkit.NewClock()
	h := withQuota(t, clk, 5)
	c := h.connector(of("gpu-7"))
	bring(t, c, many(5, func(int) record.Record { return fault("gpu-7", "0", observed) })...)
	got := bring(t, c,
		fault("gpu-7", "0", observed), fault("gpu-7", "0"), fault("gpu-7", "0", func(r *record.Record) { r.Event.Message = "in other words" }),
		fault("gpu-7", "1"), fault("gpu-7", "0", healthy), fault("gpu-7", "0"))
	want := []store.AppendResult{store.Counted, store.Appended, store.Counted, store.Appended, store.Appended, store.Appended}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("beyond the quota (-want +got):\n%s", diff)
	}
	if got := bring(t, h.connector(of("gpu-8")), fault("gpu-8", "0", observed)); got[0] != store.Appended {
		t.Errorf("another node's event is %s", got[0])
	}
	// A person has released the node: its connector reports it, and the fault counts again.
	results, err := c.Append(upstream.WithReset(t.Context()), []record.Record{fault("gpu-7", "0")})
	if err != nil || results[0] != store.Appended {
		t.Errorf("after a person's hand: %v, %v", results, err)
	}
	if n := len(h.stored()); n != 5+4+1+1 {
		t.Errorf("%d records are stored", n)
	}
	if n := h.gateway.Metrics.OverQuota(forwardpolicy.Observed) + h.gateway.Metrics.OverQuota(forwardpolicy.Repeat); n != 2 {
		t.Errorf("%d records are counted in metrics", n)
	}
	clk.Step(24 * time.Hour)
	if got := bring(t, c, fault("gpu-7", "0", observed)); got[0] != store.Appended {
		t.Errorf("the next day: %s", got[0])
	}
}

// TestNodeWithUnboundedIdentities: a node that reports ever new fatal PROCESS faults cannot fill
// the store, and the first fault of each of its checks is stored all the same.
func TestNodeWithUnboundedIdentities(t *testing.T) {
	clk := testkit.NewClock()
	const day, flood = 50, 1000
	h := withQuota(t, clk, day)
	c := h.connector(of("gpu-7"))
	noise := many(flood, func(i int) record.Record { return fault("gpu-7", fmt.Sprint(i)) })
	for part := range flood / 100 {
		if _, err := c.Append(t.Context(), noise[part*100:(part+1)*100]); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(h.stored()); n != 2*day+1 {
		t.Errorf("%d of %d records are stored, want the quota, the reserve and one for all others", n, flood)
	}
	got := bring(t, c, fault("gpu-7", "0", func(r *record.Record) { r.Event.CheckName = "Another" }), fault("gpu-7", "", func(r *record.Record) {
		r.Event.EntitiesImpacted, r.Event.ErrorCode = nil, []string{"48"}
	}))
	if diff := cmp.Diff([]store.AppendResult{store.Appended, store.Appended}, got); diff != "" {
		t.Errorf("first faults (-want +got):\n%s", diff)
	}
	var last record.Record
	for _, r := range h.stored() {
		if r.Event.CheckName == "Another" {
			last = r
		}
	}
	if len(last.Event.EntitiesImpacted) != 0 || !last.Event.IsFatal {
		t.Errorf("the fault that stands for others: %+v", last.Event)
	}
}

// TestAnAlternatingNode: a node reports a fault and its recovery by turns. When its reserve is
// spent, its connector keeps them, and they are stored at a trickle; what is counted goes on.
func TestAnAlternatingNode(t *testing.T) {
	clk := testkit.NewClock()
	const day = 20
	h := withQuota(t, clk, day)
	c := h.connector(of("gpu-7"))
	stored := 0
	turn := func() error {
		r := fault("gpu-7", "")
		r.Event.EntitiesImpacted = nil
		if stored%2 == 1 {
			healthy(&r)
		}
		results, err := c.Append(t.Context(), []record.Record{r})
		if err == nil && results[0] == store.Appended {
			stored++
		}
		return err
	}
	var err error
	for err == nil && stored < 10000 {
		err = turn()
	}
	if burst := stored - 2*day; status.Code(err) != codes.ResourceExhausted || burst > 256 {
		t.Errorf("%d are stored beyond the reserve, then %v", burst, err)
	}
	if got := bring(t, c, fault("gpu-7", "0", observed)); got[0] != store.Counted {
		t.Errorf("an observation meanwhile is %s", got[0])
	}
	before := stored
	for range 60 {
		clk.Step(time.Second)
		_ = turn()
	}
	if n := stored - before; n == 0 || n > 61 {
		t.Errorf("%d are stored within a minute, of which each has %d bytes at least", n, 1<<10)
	}
}

// TestAQuotaOutlivesItsGateway: one that is started again in its place goes on, and others
// know within a minute.
func TestAQuotaOutlivesItsGateway(t *testing.T) {
	clk := testkit.NewClock()
	h := withQuota(t, clk, 10)
	bring(t, h.connector(of("gpu-7")), many(12, func(int) record.Record { return fault("gpu-7", "0", observed) })...)
	h.gateway.Quotas.MustExchange(t)
	for _, name := range []string{"one", "two"} {
		other := newHall(t, func(g *gateway.Gateway, _ *gateway.Limits) {
			g.Clock, g.Store = clk, h.store
			g.Quotas = quotas(g, name, 10)
		})
		c := other.connector(of("gpu-7"))
		other.gateway.Quotas.MustExchange(t)
		if got := bring(t, c, fault("gpu-7", "0", observed)); got[0] != store.Counted {
			t.Errorf("by gateway %s an observation beyond the quota is %s", name, got[0])
		}
		other.gateway.Quotas.MustExchange(t)
		other.gateway.Quotas.MustExchange(t) // and is not counted twice
	}
	days, err := store.ReadUse(t.Context(), h.store)
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]int64{}
	for _, d := range days {
		counted[d.Gateway] = d.Nodes["gpu-7"].Counted.Records
		if n := d.Nodes["gpu-7"]; d.Gateway == "one" && (n.Records != 10 || n.Counted.First.IsZero() || n.Counted.Last.Before(n.Counted.First)) {
			t.Errorf("noted: %+v", n)
		}
	}
	if diff := cmp.Diff(map[string]int64{"one": 3, "two": 1}, counted); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
	clk.Step(24 * time.Hour)
	h.gateway.Quotas.MustExchange(t)
	if got := bring(t, h.connector(of("gpu-7")), fault("gpu-7", "0", observed)); got[0] != store.Appended {
		t.Errorf("the next day: %s", got[0])
	}
}

// TestAQuotaIsExchangedByItself: each minute, earlier when a node has brought much, and
// once more at the end.
func TestAQuotaIsExchangedByItself(t *testing.T) {
	clk := testkit.NewClock()
	h := withQuota(t, clk, 16)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.gateway.Quotas.Run(ctx) }()
	noted := func() int64 {
		days, err := store.ReadUse(t.Context(), h.store)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range days {
			return d.Nodes["gpu-7"].Records
		}
		return 0
	}
	c := h.connector(of("gpu-7"))
	bring(t, c, many(2, func(int) record.Record { return fault("gpu-7", "0", observed) })...)
	testkit.Until(t, time.Minute, func() bool { clk.Step(time.Second); return noted() == 2 })
	bring(t, c, fault("gpu-7", "0", observed))
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := noted(); n != 3 {
		t.Errorf("%d records are noted at the end", n)
	}
}

// TestUnstoredRecordIsNoRepeat: neither when the store failed, nor when another has taken
// its place, nor of another connection.
func TestUnstoredRecordIsNoRepeat(t *testing.T) {
	clk := testkit.NewClock()
	m := &moved{}
	m.name.Store("one")
	h := newHall(t, func(g *gateway.Gateway, _ *gateway.Limits) {
		m.away, _ = g.Store.(*away)
		g.Clock, g.Quotas = clk, quotas(g, "one", 1)
		g.Store = m
	})
	c := h.connector(of("gpu-7"))
	bring(t, c, fault("gpu-7", "x"))
	gone := errors.New("no connection")
	h.store.err.Store(&gone)
	if _, err := c.Append(t.Context(), []record.Record{fault("gpu-7", "0")}); status.Code(err) != codes.Unavailable {
		t.Fatal(err)
	}
	h.store.err.Store(nil)
	if got := bring(t, c, fault("gpu-7", "0"), fault("gpu-7", "0")); got[0] != store.Appended || got[1] != store.Counted {
		t.Errorf("after the store was away: %v", got)
	}
	m.name.Store("two")
	if _, err := c.Append(t.Context(), []record.Record{fault("gpu-7", "0"), fault("gpu-7", "1")}); status.Code(err) != codes.Unavailable {
		t.Errorf("a repeat of what another store has: %v", err)
	}
	if got := bring(t, c, fault("gpu-7", "0")); got[0] != store.Appended {
		t.Errorf("again: %v", got)
	}
	m.name.Store("three")
	results, _, err := c.AppendTo(t.Context(), "three", []record.Record{fault("gpu-7", "0")})
	if err != nil || results[0] != store.Appended {
		t.Errorf("to the store that is there now: %v, %v", results, err)
	}
	if got := bring(t, h.connector(of("gpu-7")), fault("gpu-7", "0")); got[0] != store.Appended {
		t.Errorf("of another connection: %v", got)
	}
}

// TestANewDayBetween: what was known to be stored on the day before is forgotten by a call
// within the quota, which may have ended it.
func TestANewDayBetween(t *testing.T) {
	clk := testkit.NewClock()
	clk.SetTime(testkit.Start.Truncate(24 * time.Hour).Add(24*time.Hour - 10*time.Second))
	h := withQuota(t, clk, 3)
	c := h.connector(of("gpu-7"))
	bring(t, c, many(3, func(i int) record.Record { return fault("gpu-7", fmt.Sprint("x", i)) })...)
	if got := bring(t, c, fault("gpu-7", "0"), fault("gpu-7", "0")); got[0] != store.Appended || got[1] != store.Counted {
		t.Fatalf("before midnight: %v", got)
	}
	clk.Step(15 * time.Second)
	bring(t, c, fault("gpu-7", "0", healthy), fault("gpu-7", "x", observed), fault("gpu-7", "x", observed))
	if got := bring(t, c, fault("gpu-7", "0"), fault("gpu-7", "0")); got[0] != store.Appended || got[1] != store.Counted {
		t.Errorf("after a recovery within the new day's quota: %v", got)
	}
}

// TestClusterScopedPublisherHasNoQuota: it is no node's.
func TestClusterScopedPublisherHasNoQuota(t *testing.T) {
	h := withQuota(t, testkit.NewClock(), 1)
	c := h.connector(of("gpu-7"))
	bring(t, c, fault("gpu-7", "0"))
	derived := fault("gpu-9", "0", observed, func(r *record.Record) {
		r.Event.Agent, r.Event.CheckName = "health-events-analyzer", "RepeatedXID"
	})
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+token(authn.Audience, analyzer, "gpu-7")))
	results, err := c.Append(ctx, []record.Record{derived})
	if err != nil || results[0] != store.Appended {
		t.Errorf("%v, %v", results, err)
	}
}

// TestDeadLettersOfANodeAreBounded: the oldest go, and when the node's quota and reserve
// are spent no more are kept; its connector is informed.
func TestDeadLettersOfANodeAreBounded(t *testing.T) {
	clk := testkit.NewClock()
	h := withQuota(t, clk, 10)
	c := h.connector(of("gpu-7"))
	dead := func(id string, bytes int) (dropped int) {
		ctx := upstream.ListenDropped(t.Context(), func(n int) { dropped += n })
		if err := c.Dead(ctx, store.DeadLetter{ID: id, Reason: "why", Body: make([]byte, bytes)}); err != nil {
			t.Fatal(err)
		}
		clk.Step(time.Second)
		return dropped
	}
	dropped := 0
	for i := range 5 { // five times 4 MiB, of which 16 MiB are kept
		dropped += dead(fmt.Sprint(i), 4<<20)
	}
	letters, err := h.store.DeadLetters(t.Context(), "platform-connectors/gpu-7")
	if err != nil || dropped != 1 || letters[0].ID != "4" {
		t.Errorf("%d are dropped, %v", dropped, err)
	}
	for i := range 100 {
		dropped += dead(fmt.Sprint("small ", i), 1)
	}
	if dropped != 2+100-15 { // the first of them has another one of 4 MiB go
		t.Errorf("%d are dropped", dropped)
	}
	if n := h.gateway.Metrics.OverQuota("dead-letter"); n != 100-15 {
		t.Errorf("%d are counted", n)
	}
}

// TestSharesAreAMetric of the nodes that have used most, and of no more than a bound.
func TestSharesAreAMetric(t *testing.T) {
	clk := testkit.NewClock()
	h := withQuota(t, clk, 1000)
	for i := range 120 {
		records := many(490+i, func(i int) record.Record { return fault("n", fmt.Sprint(i), observed) })
		if err := h.gateway.Decide(fmt.Sprint("gpu-", i), records, 1); err != nil {
			t.Fatal(err)
		}
	}
	h.gateway.Quotas.MustExchange(t)
	shares := h.gateway.Metrics.Shares()
	if len(shares) != 100 || shares["gpu-119"] != 0.609 || shares["gpu-9"] != 0 {
		t.Errorf("%d shares, that of the largest %v, of one below the half %v", len(shares), shares["gpu-119"], shares["gpu-9"])
	}
}

// BenchmarkAllowance is what the quota costs an append of 256 records, per call.
func BenchmarkAllowance(b *testing.B) {
	records := many(256, func(i int) record.Record { return fault("gpu-7", fmt.Sprint(i)) })
	for _, bound := range []int64{0, 1 << 60, 1} {
		b.Run(fmt.Sprint("quota of ", bound), func(b *testing.B) {
			clk := testkit.NewClock()
			g := &gateway.Gateway{Clock: clk, Metrics: gateway.NewMetrics(prometheus.NewRegistry())}
			g.Quotas = gateway.NewQuotas(&gateway.Quotas{Limits: forwardpolicy.Quota{Records: bound}, Clock: clk, Metrics: g.Metrics})
			for b.Loop() {
				if err := g.Decide("gpu-7", records, 1000); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
