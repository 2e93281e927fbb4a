package bench_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/internal/gobuild"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/tests/bench"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

// tiny is just enough for every figure to have something to measure.
var tiny = bench.Sizes{
	Acks: 5, Events: 40, Publishers: 4, Nodes: 14, Pods: 20, Idle: 100 * time.Millisecond,
	Cordons: 2, Repairs: 1, DrainNodes: 2, PodsPerNode: 3, Storm: 3,
	Noise: 2 * time.Second, NoiseRate: 1000, NoiseNodes: 2, NoiseQuota: 1000,
	Short: 10, Long: 50, Queries: 3,
	ObjectNodes: 20, ObjectPods: 40, Changes: 20, Reboots: 4, Limit: 3 * time.Minute,
}

type testLog struct{ t *testing.T }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// TestEveryFigureIsMeasured runs the whole at a tiny size. How long things
// took is not looked at, only that they were measured.
func TestEveryFigureIsMeasured(t *testing.T) {
	testkit.Long(t, "the chaos test runs what it measures with")
	root, err := fleet.Root()
	if err != nil {
		t.Fatal(err)
	}
	bin, err := fleet.Build(t.Context(), root, t.TempDir(), testLog{t})
	if err != nil {
		t.Fatal(err)
	}
	connectors, err := bench.BuildConnectors(t.Context(), root, t.TempDir(), gobuild.Builder{Progress: testLog{t}})
	if err != nil {
		t.Fatal(err)
	}
	table, err := bench.Run(t.Context(), bench.Options{Root: root, Bin: bin, Connectors: connectors, Sizes: tiny, Progress: testLog{t}})
	if err != nil {
		t.Fatalf("%v\n%s", err, table)
	}
	t.Logf("\n%s", table)
	for _, want := range []string{
		"acknowledgement p50", "acknowledged, 4 publishers", "into PostgreSQL", "connector's memory in that run",
		"idle CPU", "memory of fault-quarantine", "memory of platform-connectors", "memory of platform-connectors-gateway", "memory of syslog-health-monitor",
		"cordoned, p50", "cordoned, p90", "cordoned, p99", "maintenance object, nothing to drain, p50", "gone to maintenance object, p50", "drain of 6 pods on 2 nodes",
		"3 nodes failing at once, all cordoned", "3 nodes failing at once, all maintenance objects",
		"memory of fault-quarantine in the storm", "memory of node-drainer in the storm", "memory of fault-remediation in the storm",
		"2 nodes beside a noisy one, p50, no quota", "2 nodes beside a noisy one, p99, no quota",
		"2 nodes beside a noisy one, p50, quota of 1000 records", "2 nodes beside a noisy one, p99, quota of 1000 records",
		"objects: change to event, p50", "objects: change to event, p99", "objects: API requests at rest",
		"sqlite: append to feed", "sqlite: open work of all nodes", "postgresql: append to feed", "postgresql: open work of one node",
		"janitor: 4 reboots asked for at once", "janitor: 4 reboots against their API requests alone", "janitor: API requests per reboot", "janitor: memory at most",
		"to a receiver, one per request", "to a receiver, in batches",
		"analyzer: events per second behind 10 records", "analyzer: events per second behind 50 records", "analyzer: CPU per event behind 50 records",
	} {
		at := slices.IndexFunc(table, func(r bench.Row) bool { return strings.Contains(r.Figure, want) })
		if at < 0 {
			t.Errorf("no figure %q", want)
			continue
		}
		r := table[at]
		if r.Target == (bench.Target{}) || r.Verdict() == "-" {
			t.Errorf("%s: no target", r.Figure)
		}
		if (r.Target.Within > 0 || r.Target.AtLeast > 0) && r.Baseline.Value <= 0 {
			t.Errorf("%s: floor %s", r.Figure, r.Baseline)
		}
		if r.Measured.Value <= 0 && r.Measured.Unit != bench.Millicores && r.Measured.Unit != bench.Seconds && r.Measured.Unit != bench.PerMinute {
			t.Errorf("%s: measured %s", r.Figure, r.Measured)
		}
	}
}

// TestBaselinesAreShort checks that the baselines do only what makes them baselines.
func TestBaselinesAreShort(t *testing.T) {
	files, err := filepath.Glob("baseline_*.go")
	if err != nil || len(files) < 6 {
		t.Fatalf("baselines %v, %v", files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "\n"); n > 60 {
			t.Errorf("%s has %d lines, more than 60", f, n)
		}
		for _, waits := range []string{"Sleep", "NewTicker", "time.After"} {
			if strings.Contains(string(text), waits) {
				t.Errorf("%s waits: %s", f, waits)
			}
		}
	}
}

func TestVerdict(t *testing.T) {
	q := func(v float64) bench.Quantity { return bench.Quantity{Value: v, Unit: bench.Seconds, Valid: true} }
	tests := []struct {
		name string
		row  bench.Row
		want string
	}{
		{"within", bench.Row{Measured: q(2), Baseline: q(1), Target: bench.Target{Within: 2}}, "met"},
		{"not within", bench.Row{Measured: q(2.1), Baseline: q(1), Target: bench.Target{Within: 2}}, "missed"},
		{"within of nothing", bench.Row{Measured: q(1), Target: bench.Target{Within: 2}}, "missed"},
		{"at least", bench.Row{Measured: q(7), Baseline: q(10), Target: bench.Target{AtLeast: 0.7}}, "met"},
		{"less", bench.Row{Measured: q(6.9), Baseline: q(10), Target: bench.Target{AtLeast: 0.7}}, "missed"},
		{"under", bench.Row{Measured: q(0.2), Target: bench.Target{Under: q(0.3)}}, "met"},
		{"not under", bench.Row{Measured: q(0.3), Target: bench.Target{Under: q(0.3)}}, "missed"},
		{"over", bench.Row{Measured: q(0.3), Target: bench.Target{Over: q(0.3)}}, "met"},
		{"not over", bench.Row{Measured: q(0.2), Target: bench.Target{Over: q(0.3)}}, "missed"},
		{"no target", bench.Row{Measured: q(1), Baseline: q(1)}, "-"},
	}
	for _, tc := range tests {
		if got := tc.row.Verdict(); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestTable(t *testing.T) {
	got := bench.Table{
		{
			Figure: "wait", Measured: bench.Quantity{Value: 0.00042, Unit: bench.Seconds, Valid: true},
			Baseline: bench.Quantity{Value: 0.0003, Unit: bench.Seconds, Valid: true}, Target: bench.Target{Within: 2}, Note: "a note",
		},
		{
			Figure: "memory", Measured: bench.Quantity{Value: 42e6, Unit: bench.Bytes, Valid: true},
			Target: bench.Target{Under: bench.Quantity{Value: 40e6, Unit: bench.Bytes, Valid: true}},
		},
	}.String()
	want := `figure  ours     floor   ratio  target
wait    420 µs   300 µs  1.40x  within 2x      met     a note
memory  42.0 MB  -       -      under 40.0 MB  missed
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTableAgainstOthers(t *testing.T) {
	q := func(v float64) bench.Quantity { return bench.Quantity{Value: v, Unit: bench.Times, Valid: true} }
	got := bench.Table{{Figure: "races", Measured: q(1), Other: q(4)}, {Figure: "no more", Measured: q(0), Other: q(3)}, {Figure: "alone", Measured: q(2)}}.String()
	want := `figure   ours  against  change  floor  ratio  target
races    1.00  4.00     0.25x   -      -      -       -
no more  0.00  3.00     0.00x   -      -      -       -
alone    2.00  -        -       -      -      -       -
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestCheckNamesUnknownFigures(t *testing.T) {
	if err := (bench.Options{Only: bench.Figures()}).Check(); err != nil {
		t.Error(err)
	}
	err := bench.Options{Only: []string{"drain", "speed"}, Against: t.TempDir()}.Check()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{`"speed"`, "fault-quarantine: no such file", "csp-plugin-kwok: no such file"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not in %v", want, err)
		}
	}
}
