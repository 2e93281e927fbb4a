package watch

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/internal/connector"
	"github.com/nvidia/nvsentinel/health-monitors/internal/nodefile"
	"github.com/nvidia/nvsentinel/health-monitors/location"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/catalogue"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/internal/source"
	"github.com/nvidia/nvsentinel/health-monitors/xid"
	"github.com/nvidia/nvsentinel/internal/report"
	"github.com/nvidia/nvsentinel/internal/report/reporttest"
)

// node is a machine under test: its files, and the monitor on it. The clock is
// the test's; a pass happens only when the test asks for it.
type node struct {
	t         testing.TB
	dir       string
	clock     *testclock.FakeClock
	policy    Policy
	options   report.Options
	connector *reporttest.Connector

	// cleared is the file of what people cleared, empty for none.
	cleared string

	// written is the kernel's log of all boots; source opens another log.
	written []writtenLine
	booted  string
	source  func() logSource
	// overwritten is how many lines of it are lost, away that it cannot be opened.
	overwritten int
	away        bool

	m       *Monitor
	outbox  *report.Outbox
	metrics *prometheus.Registry
	stop    func()
}

// logSource is a source as the program holds it.
type logSource interface {
	Source
	Counts() source.Counts
	Close() error
}

const (
	gpu0 = "GPU-00000000-0000-0000-0000-000000000000"
	gpu1 = "GPU-11111111-1111-1111-1111-111111111111"
)

// builtin is the catalogue of all tests.
var builtin = catalogue.Builtin()

// newNode makes a node on boot-1 with an empty log, one GPU in its metadata
// file, and a connector that listens. The monitor is not started.
func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{
		t: t, dir: t.TempDir(), clock: testclock.NewFakeClock(time.Unix(1_800_000_000, 0)), connector: reporttest.Start(t),
		policy: Policy{Node: "n1", Strategy: record.Process, GapStrategy: record.PersistOnly, LookBack: 10 * 365 * 24 * time.Hour, Settle: 2 * time.Minute, Catalogue: builtin},
	}
	n.boot("boot-1")
	n.write("gpu_metadata.json", `{"version":"1.0","chassis_serial":"C1","gpus":[
		{"gpu_id":0,"uuid":"`+gpu0+`","pci_address":"00000000:3B:00.0"}]}`)
	t.Cleanup(n.end)
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

func (n *node) write(name, content string) {
	n.t.Helper()
	if err := os.WriteFile(n.path(name)+".new", []byte(content), 0o600); err != nil {
		n.t.Fatal(err)
	}
	if err := os.Rename(n.path(name)+".new", n.path(name)); err != nil {
		n.t.Fatal(err)
	}
}

// boot makes id the one that the kernel shows; empty is unreadable.
func (n *node) boot(id string) {
	n.write("boot_id", id+"\n")
	if id != "" {
		n.booted = id
	}
}

// start starts the monitor's process.
func (n *node) start() {
	n.t.Helper()
	n.options.Clock = n.clock
	outbox, err := report.Open(n.path("outbox.db"), n.options)
	if err != nil {
		n.t.Fatal(err)
	}
	conn, err := report.Dial(n.connector.Target(), "")
	if err != nil {
		n.t.Fatal(err)
	}
	var log logSource = &writtenLog{node: n}
	if n.source != nil {
		log = n.source()
	}
	quiet := slog.New(slog.DiscardHandler)
	n.outbox, n.metrics = outbox, prometheus.NewRegistry()
	publisher := &report.Publisher{
		Name: location.Agent, Outbox: outbox, Connector: protos.NewPlatformConnectorClient(conn), Clock: clock.RealClock{}, Log: quiet,
		Metrics: report.NewMetrics(n.metrics, Prefix, outbox, n.clock),
	}
	n.m = &Monitor{
		Policy: n.policy, Outbox: outbox, Source: log, Cleared: connector.FollowClearances(n.cleared), BootID: nodefile.BootID(n.path("boot_id")),
		Devices: nodefile.FollowGPUs(n.path("gpu_metadata.json"), location.Address), Clock: n.clock, Log: quiet,
		Metrics: NewMetrics(n.metrics, log.Counts),
	}
	if j, ok := log.(interface{ Wake() <-chan struct{} }); ok {
		n.m.Wake = j.Wake()
	}
	if err := n.m.remember(); err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- publisher.Run(ctx) }()
	n.stop = func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Error(err)
		}
		_ = conn.Close()
		_ = log.Close()
		if err := outbox.Close(); err != nil {
			n.t.Error(err)
		}
	}
}

// end ends the monitor's process as a crash does: nothing is written any more.
func (n *node) end() {
	if n.stop != nil {
		n.stop()
		n.stop = nil
	}
}

func (n *node) restart() { n.end(); n.start() }

// passes lets the monitor work until it has nothing left to do, and fails the
// test when it can't.
func (n *node) passes() {
	n.t.Helper()
	for range 1000 {
		more, err := n.m.pass()
		if err != nil {
			n.t.Fatal(err)
		}
		if !more {
			return
		}
	}
	n.t.Fatal("the monitor does not come to rest")
}

// wait passes time and lets the monitor work.
func (n *node) wait(d time.Duration) {
	n.t.Helper()
	n.clock.Step(d)
	n.passes()
}

// delivered waits until the outbox is empty and gives what the connector got.
func (n *node) delivered() []record.Event {
	n.t.Helper()
	deadline := time.After(2 * time.Minute)
	for {
		changed := n.outbox.Changed()
		if n.outbox.Stats().Entries == 0 {
			break
		}
		select {
		case <-changed:
		case <-deadline:
			n.t.Fatalf("outbox still holds %d entries", n.outbox.Stats().Entries)
		}
	}
	var out []record.Event
	for _, e := range n.connector.Distinct(n.t) {
		out = append(out, record.FromProto(e))
	}
	return out
}

// summarize writes events down in a line each: code or "healthy", action, boot.
func summarize(events []record.Event) []string {
	var out []string
	for _, e := range events {
		what := strings.Join(e.ErrorCode, "+") + " " + string(e.RecommendedAction)
		if e.IsHealthy {
			what = "healthy"
		}
		if e.ProcessingStrategy == record.PersistOnly {
			what += " persist-only"
		}
		out = append(out, what+" "+e.BootID())
	}
	return out
}

// expect compares what the connector got, but for the recoveries of whole checks
// other than that of XIDs: those come with every reboot.
func (n *node) expect(want ...string) {
	n.t.Helper()
	events := slices.DeleteFunc(n.delivered(), func(e record.Event) bool {
		return e.IsHealthy && len(e.EntitiesImpacted) == 0 && e.CheckName != xid.Check
	})
	if diff := cmp.Diff(want, summarize(events)); diff != "" {
		n.t.Errorf("events (-want +got):\n%s", diff)
	}
}

// value is a metric's sum over its labels that contain all of pick.
func (n *node) value(name string, pick ...string) float64 {
	n.t.Helper()
	families, err := n.metrics.Gather()
	if err != nil {
		n.t.Fatal(err)
	}
	var sum float64
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetValue())
			}
			if cmp.Equal(labels, pick) || len(pick) == 0 {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}
