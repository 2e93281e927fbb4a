package matching_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

const sameXID = `
[[rules]]
name = "SameXIDOnThreeNodes"
action = "NONE"
scope = "cluster"
clear = "sources"
window = "10m"
by = ["code"]
distinct = ["node"]
count = 3
[rules.when]
checks = ["SysLogsXIDError"]
`

func parsed(t *testing.T, text string) []rule.Rule {
	t.Helper()
	rules, err := rule.Parse("rules.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// rack is a bench whose connector stores what it takes, as the real one does
// before it acknowledges.
type rack struct{ *bench }

func newRack(t *testing.T, s store.Store, cached int, rules []rule.Rule) *rack {
	t.Helper()
	r := &rack{newBenchOf(t, s, cached, rules)}
	r.connector.Refuse(r.keep)
	return r
}

func (r *rack) keep(in *protos.HealthEvents) error {
	for _, e := range in.GetEvents() {
		x := record.Record{ID: e.GetId(), CreatedAt: r.clock.Now(), Event: record.FromProto(e)}
		x.Seq, x.SeqEpoch, _ = x.Event.Seq()
		if _, err := r.store.Append(context.Background(), []record.Record{x}); err != nil {
			return status.Error(codes.Unavailable, err.Error())
		}
	}
	return nil
}

func node(i int) string { return fmt.Sprint("n", i) }

// event stores one of a node, which happened so long after the start, and
// returns its id.
func (r *rack) event(i int, at time.Duration, edit ...func(*record.Record)) string {
	r.t.Helper()
	x := storetest.Record(node(i), func(x *record.Record) {
		x.CreatedAt = testkit.Start.Add(at)
		x.Event.GeneratedTimestamp, x.Event.ErrorCode = x.CreatedAt, []string{"31"}
		x.Event.EntitiesImpacted = []record.Entity{{EntityType: "GPU_UUID", EntityValue: fmt.Sprint("GPU-", i)}}
	})
	for _, e := range edit {
		e(&x)
	}
	storetest.MustAppend(r.t, r.store, x)
	return x.ID
}

func healthy(x *record.Record) {
	x.Event.IsHealthy, x.Event.IsFatal, x.Event.ErrorCode = true, false, nil
}

// deliver does what the feeds do: it handles the node for each key that they return.
func (r *rack) deliver(ids ...string) {
	r.t.Helper()
	for _, id := range ids {
		x := storetest.MustGet(r.t, r.store, id)
		bring := r.Trigger
		if x.Event.IsHealthy || x.Event.Agent == record.AnalyzerAgent {
			bring = r.Cause
		}
		if key := bring(x); key != "" {
			r.handle(key)
		}
	}
}

// derived lists what is stored of the rules of the cluster, "-" before a recovery.
func (r *rack) derived() []string {
	r.t.Helper()
	list, err := r.store.List(r.t.Context(), store.Query{Selector: record.Selector{Agent: record.AnalyzerAgent}})
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, x := range list {
		text := fmt.Sprint(x.Event.CheckName, " ", x.Event.NodeName)
		if x.Event.IsHealthy {
			text = "-" + text
		}
		out = append(out, text)
	}
	return out
}

func (r *rack) want(what string, want ...string) {
	r.t.Helper()
	if got := r.derived(); !slices.Equal(got, want) {
		r.t.Errorf("%s: derived %v, want %v", what, got, want)
	}
}

const (
	onThird   = "SameXIDOnThreeNodes n3"
	offAgain  = "-SameXIDOnThreeNodes n3"
	rackNodes = 18
)

// TestARackIsOneFault: the same XID on 18 nodes is one fault of the third, once, whichever
// matcher evaluates it again: one that starts in the middle, one that was there all the
// time and does not know of the other, and one whose windows are dropped. It ends when the
// last of its three causes does, long after.
func TestARackIsOneFault(t *testing.T) {
	s := storetest.SQLite(t)
	first, replica := newRack(t, s, 1000, parsed(t, sameXID)), newRack(t, s, 1000, parsed(t, sameXID))
	var ids []string
	more := func(n int) []string {
		for range n {
			i := len(ids) + 1
			ids = append(ids, first.event(i, time.Duration(i)*time.Second-time.Minute))
		}
		return ids[len(ids)-n:]
	}
	first.deliver(more(2)...)
	first.want("two nodes")
	first.deliver(more(7)...)
	first.want("nine nodes", onThird)
	found, err := s.List(t.Context(), store.Query{Selector: record.Selector{Agent: record.AnalyzerAgent}})
	if err != nil {
		t.Fatal(err)
	}
	e := found[0].Event
	if e.IsFatal || e.RecommendedAction != record.ActionNone || e.Metadata["scope"] != "cluster" || e.Metadata["subject"] != "code=31" ||
		e.Metadata["sources"] != strings.Join(ids[:3], ",") || e.EntitiesImpacted[0].EntityValue != "GPU-3" {
		t.Errorf("derived %+v", e)
	}
	more(rackNodes - 9)
	replica.deliver(ids...)
	recreated := newRack(t, s, 0, parsed(t, sameXID))
	recreated.deliver(ids[5:]...)
	recreated.deliver(found[0].ID)
	recreated.want("the rack, from the middle on", onThird)

	first.deliver(first.event(2, time.Minute, healthy))
	first.deliver(first.event(1, 2*time.Minute, healthy))
	first.want("two of three causes recovered", onThird)
	late := newRack(t, s, 1000, parsed(t, sameXID))
	late.clock.Step(50 * time.Hour)
	late.deliver(late.event(7, 49*time.Hour, healthy))
	late.want("another node's recovery", onThird)
	late.deliver(late.event(3, 50*time.Hour, healthy))
	late.want("the last cause is over", onThird, offAgain)

	again := newRack(t, s, 1000, parsed(t, sameXID))
	again.clock.Step(50 * time.Hour)
	again.deliver(again.event(3, 50*time.Hour, healthy))
	again.want("after another restart", onThird, offAgain)
}

// TestAClusterFaultEndsWithoutItsRule: the file has no rule of the cluster any
// more.
func TestAClusterFaultEndsWithoutItsRule(t *testing.T) {
	s := storetest.SQLite(t)
	first := newRack(t, s, 1000, parsed(t, sameXID))
	for i := 1; i <= 3; i++ {
		first.deliver(first.event(i, time.Duration(i)*time.Second-time.Minute))
	}
	first.want("three nodes", onThird)
	second := newRack(t, s, 1000, rules())
	second.deliver(second.event(3, time.Minute, healthy))
	second.deliver(second.event(1, 2*time.Minute, healthy))
	second.want("two of three causes recovered", onThird)
	second.deliver(second.event(2, 3*time.Minute, healthy))
	second.want("without its rule", onThird, offAgain)
}

// TestAConnectorThatRefusesTheClusterHoldsItsNodes: a node's own rules go on,
// and its delivery is not settled before the cluster's is.
func TestAConnectorThatRefusesTheClusterHoldsItsNodes(t *testing.T) {
	r := newRack(t, storetest.SQLite(t), 1000, append(parsed(t, sameXID), rules()...))
	broken := true
	r.connector.Refuse(func(in *protos.HealthEvents) error {
		if broken && in.GetEvents()[0].GetCheckName() == "SameXIDOnThreeNodes" {
			return status.Error(codes.Unavailable, "cut")
		}
		return r.keep(in)
	})
	for i := 1; i <= 2; i++ {
		r.deliver(r.event(i, -time.Minute))
	}
	r.Trigger(storetest.MustGet(t, r.store, r.event(3, -time.Minute)))
	r.Trigger(storetest.MustGet(t, r.store, r.event(3, -time.Minute, func(x *record.Record) {
		x.Event.EntitiesImpacted[0].EntityValue = "GPU-other"
	})))
	if err := r.Handle(t.Context(), "n3"); err == nil {
		t.Error("the node is settled before what the cluster derives is published")
	}
	r.want("its own rule", "RepeatedXID31OnDifferentGPU n3")
	broken = false
	r.handle("n3")
	r.want("both", "RepeatedXID31OnDifferentGPU n3", onThird)
}

// TestPersistOnlyIsNoEvidenceOfTheCluster: in any number, read or delivered.
func TestPersistOnlyIsNoEvidenceOfTheCluster(t *testing.T) {
	r := newRack(t, storetest.SQLite(t), 1000, parsed(t, sameXID))
	observed := func(x *record.Record) { x.Event.ProcessingStrategy = record.PersistOnly }
	for i := 1; i <= 9; i++ {
		r.event(i, -time.Minute, observed)
	}
	r.deliver(r.event(10, -time.Minute), r.event(11, -time.Minute))
	for i := 12; i <= 20; i++ {
		r.deliver(r.event(i, -time.Minute, observed))
		r.Cause(storetest.MustGet(t, r.store, r.event(i, -time.Minute, observed)))
		r.handle(node(i))
	}
	r.want("two that act")
	r.deliver(r.event(30, -time.Minute))
	r.want("three that act", "SameXIDOnThreeNodes n30")
}

// TestClusterKeepsItsEvents: other events are not in its window, and
// without a rule of it there is none.
func TestClusterKeepsItsEvents(t *testing.T) {
	other := func(x *record.Record) { x.Event.CheckName = "GpuMemWatch" }
	many := strings.Replace(sameXID, "count = 3", "count = 99", 1)
	for name, c := range map[string]struct {
		rules []rule.Rule
		want  float64
	}{
		"no rule":         {rules(), 20},
		"another check's": {parsed(t, many), 20},
		"the check's":     {parsed(t, strings.Replace(many, "SysLogsXIDError", "GpuMemWatch", 1)), 40},
		"every event's":   {parsed(t, strings.Replace(many, `checks = ["SysLogsXIDError"]`, "", 1)), 40},
	} {
		r := newRack(t, storetest.SQLite(t), 1000, c.rules)
		for i := range 10 {
			r.deliver(r.event(i, -time.Minute, other), r.event(i, -time.Minute, other, healthy))
		}
		if got := r.cached(); got != c.want {
			t.Errorf("%s: %v events are kept, want %v", name, got, c.want)
		}
	}
}

// TestTheClusterWindowIsBounded: of more than it may hold the oldest are left
// out, when it grows and when it is read.
func TestTheClusterWindowIsBounded(t *testing.T) {
	const most = 1024
	s := storetest.SQLite(t)
	r := newRack(t, s, 0, parsed(t, strings.Replace(sameXID, "count = 3", "count = 4", 1)))
	var flood []record.Record
	add := func(i int, at time.Duration) {
		x := storetest.Record(node(i), func(x *record.Record) {
			x.CreatedAt = testkit.Start.Add(at)
			x.Event.GeneratedTimestamp, x.Event.ErrorCode, x.Event.EntitiesImpacted = x.CreatedAt, []string{"31"}, nil
		})
		flood = append(flood, x)
	}
	add(1, -9*time.Minute)
	add(2, -8*time.Minute)
	for i := range most + 1 {
		add(3, -7*time.Minute+time.Duration(i)*time.Millisecond)
	}
	storetest.MustAppend(t, s, flood...)
	r.deliver(flood[len(flood)-1].ID)
	r.deliver(r.event(5, -time.Minute, func(x *record.Record) { x.Event.CheckName = "GpuMemWatch" }))
	if got := r.cached(); got > most {
		t.Errorf("%v events are kept", got)
	}
	r.deliver(r.event(4, -time.Minute))
	r.want("two of the four are forgotten")
	if testutil.ToFloat64(r.metrics.Truncated) == 0 {
		t.Error("it is not told")
	}
}
