package scale_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/tests/bench"
	"github.com/nvidia/nvsentinel/tests/fleet"
	"github.com/nvidia/nvsentinel/tests/scale"
)

// tiny is just enough for every figure to have something to measure.
var tiny = scale.Sizes{
	PodsPerNode: 8, Heartbeat: time.Second, Replicas: 2, Steady: 100 * time.Millisecond, Idle: 200 * time.Millisecond,
	Others: 2, Reporters: 1, Rounds: 1,
	Gateways: 2, Outage: time.Second, Loud: 2, Rate: 10, Duration: 3 * time.Second, KillEvery: time.Second,
	Limit: 3 * time.Minute,
}

type testLog struct{ t *testing.T }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// TestEveryFigureIsMeasured runs the whole with six nodes. How much things took is not
// looked at, only that it was measured, and that nothing was lost.
func TestEveryFigureIsMeasured(t *testing.T) {
	testkit.Long(t, "the chaos test and the gateways' tests run what it measures; growth and outlook have tests of their own")
	root, err := fleet.Root()
	if err != nil {
		t.Fatal(err)
	}
	o := scale.Options{Root: root, Nodes: []int{6}, Sizes: tiny, Progress: testLog{t}}
	if o.Bin, o.Connectors, err = scale.Build(t.Context(), root, t.TempDir(), o.Progress); err != nil {
		t.Fatal(err)
	}
	table, err := scale.Run(t.Context(), o)
	if err != nil {
		t.Fatalf("%v\n%s", err, table)
	}
	t.Logf("\n%s", table)
	for _, want := range []string{
		"platform-connectors-gateway: memory", "fault-quarantine: memory", "kubernetes-object-monitor: processor at rest", "node-health-check: start to ready",
		"fault reported to a connector to cordon, p50", "fault seen by the object monitor to cordon, p99", "fault stored to cordon, p99", "event-exporter: memory of a replica at most",
		"beside: kube-apiserver, memory", "gateways: connections of the one with the most", "gateways: connections to the store", "gateways: memory of PostgreSQL",
		"gateways back: connections in the busiest second", "gateways back: all nodes' events stored after", "store back: calls of connectors in the busiest second",
		"store back: all nodes' events stored after", "flow: events acknowledged", "flow: accepted to stored, p99", "control plane: memory",
	} {
		row := find(table, want)
		calm := strings.Contains(want, "in the busiest second") // of six nodes, perhaps none calls in a second that is seen
		if row == nil || row.Measured.Value <= 0 && row.Measured.Unit != bench.Millicores && !calm {
			t.Errorf("%q is %v", want, row)
		}
	}
	for _, none := range []string{"flow: acknowledged events that are lost", "flow: events that are stored twice"} {
		if row := find(table, none); row == nil || row.Verdict() != "met" {
			t.Errorf("%q is %v", none, row)
		}
	}
}

func find(t bench.Table, figure string) *bench.Row {
	if i := slices.IndexFunc(t, func(r bench.Row) bool { return strings.HasSuffix(r.Figure, "nodes: "+figure) }); i >= 0 {
		return &t[i]
	}
	return nil
}

func TestCheckNamesProblems(t *testing.T) {
	good := scale.Options{Nodes: []int{1000, 3000}, Sizes: scale.Full()}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for _, bad := range []struct {
		name, message string
		change        func(*scale.Options)
	}{
		{"an unknown figure", `ONLY "speed"`, func(o *scale.Options) { o.Only = []string{"speed"} }},
		{"no size", "NODES []", func(o *scale.Options) { o.Nodes = nil }},
		{"sizes that fall", "the smallest first", func(o *scale.Options) { o.Nodes = []int{3000, 1000} }},
		{"fewer nodes than fail", "NODES 100 is less than the 220", func(o *scale.Options) { o.Nodes = []int{100} }},
	} {
		o := good
		bad.change(&o)
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), bad.message) {
			t.Errorf("%s: %v", bad.name, err)
		}
	}
}
