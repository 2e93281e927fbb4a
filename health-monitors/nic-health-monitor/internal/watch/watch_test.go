package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/internal/connector"
	"github.com/nvidia/nvsentinel/health-monitors/internal/polling"
	"github.com/nvidia/nvsentinel/health-monitors/nic-health-monitor/evaluation"
	"github.com/nvidia/nvsentinel/health-monitors/nic-health-monitor/internal/sysfs"
	"github.com/nvidia/nvsentinel/internal/report"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// card is a card with one port, whose state and counter the test sets.
type card struct {
	state   evaluation.State
	downed  uint64
	missing error
	hangs   chan struct{} // where it is set, a look sends and receives
}

func (c *card) Read(boot string, now time.Time) (evaluation.Reading, sysfs.Stats, error) {
	if c.hangs != nil {
		c.hangs <- struct{}{}
		<-c.hangs
	}
	port := evaluation.Port{Number: "1", Layer: evaluation.InfiniBand, State: c.state, Counters: map[string]uint64{"link_downed": c.downed}}
	return evaluation.Reading{At: now, Boot: boot, Devices: []evaluation.Device{{
		Name: "mlx5_0", Location: "0000:3b:00.0", GUID: "g", Model: "CX7", Ports: []evaluation.Port{port},
	}}}, sysfs.Stats{}, c.missing
}

// node is a monitor that polls when the test asks it to.
type node struct {
	*Monitor
	watch *polling.Rounds
	err   error // of the last look
	t     *testing.T
	path  string
	o     report.Options
	card  card
	clock *clocktesting.FakeClock
}

func newNode(t *testing.T, o report.Options) *node {
	t.Helper()
	n := &node{t: t, path: filepath.Join(t.TempDir(), "outbox.db"), o: o, card: card{state: evaluation.Active}, clock: testkit.NewClock()}
	n.restart()
	return n
}

// restart opens the outbox and begins with what is in it.
func (n *node) restart() {
	n.t.Helper()
	if n.Monitor != nil {
		if err := n.Outbox.Close(); err != nil {
			n.t.Fatal(err)
		}
	}
	n.o.Clock = n.clock
	outbox, err := report.Open(n.path, n.o)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = outbox.Close() })
	n.Monitor = &Monitor{
		Node: "n1", Interval: time.Second, Cards: &n.card, Outbox: outbox, BootID: func() (string, error) { return "boot-1", nil },
		Policy:  evaluation.Policy{Strategy: record.Process, ConsecutivePolls: 2, Persist: 10 * time.Second, Steady: 10 * time.Second, Counters: evaluation.Counters()},
		Cleared: connector.FollowClearances(""), Clock: n.clock, Log: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry()),
	}
	if err := n.remember(); err != nil {
		n.t.Fatal(err)
	}
	n.watch = n.Rounds()
	n.watch.Poll = func(ctx context.Context) error { n.err = n.poll(ctx); return n.err }
}

// pollTenTimes looks ten times, a second apart, and returns the last error.
func (n *node) pollTenTimes() error {
	for range 12 {
		n.clock.Step(time.Second)
		n.watch.Once(n.t.Context())
	}
	return n.err
}

func (n *node) expect(want ...string) {
	n.t.Helper()
	entries, err := n.Outbox.Peek(0, 100, 1<<20)
	if err != nil {
		n.t.Fatal(err)
	}
	var got []string
	for _, x := range entries {
		e := record.FromProto(x.Event)
		got = append(got, fmt.Sprintf("%s %s healthy=%t %s", e.CheckName, e.ErrorCode[0], e.IsHealthy, e.Metadata[record.MetadataBootID]))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		n.t.Errorf("events (-want +got):\n%s", diff)
	}
}

const (
	down   = "InfiniBandStateCheck NIC_PORT_DOWN healthy=false boot-1"
	active = "InfiniBandStateCheck NIC_PORT_DOWN healthy=true boot-1"
	downed = "InfiniBandDegradationCheck link_downed healthy=false boot-1"
)

func TestFaultAndRecoveryAreReportedOnce(t *testing.T) {
	n := newNode(t, report.Options{})
	for range 3 {
		if err := n.pollTenTimes(); err != nil {
			t.Fatal(err)
		}
		n.restart()
	}
	n.expect()
	n.card.state, n.card.downed = evaluation.Down, 1
	for range 3 {
		if err := n.pollTenTimes(); err != nil {
			t.Fatal(err)
		}
		n.restart()
	}
	n.expect(downed, down)
	n.card.state = evaluation.Active
	for range 3 {
		if err := n.pollTenTimes(); err != nil {
			t.Fatal(err)
		}
		n.restart()
	}
	n.expect(downed, down, active)
}

// TestRefusedReportIsRetried: the memory does not advance without the
// events.
func TestRefusedReportIsRetried(t *testing.T) {
	n := newNode(t, report.Options{MaxEntries: 1})
	if err := n.pollTenTimes(); err != nil {
		t.Fatal(err)
	}
	n.card.state, n.card.downed = evaluation.Down, 1
	if err := n.pollTenTimes(); !errors.Is(err, report.ErrFull) {
		t.Fatalf("a look that has no room for its events gave %v", err)
	}
	n.expect(downed)
	if ok, why := n.watch.Ready(); ok || why == "" {
		t.Errorf("ready %t, %q", ok, why)
	}
	n.restart()
	if err := n.Outbox.Remove(1); err != nil {
		t.Fatal(err)
	}
	if err := n.pollTenTimes(); err != nil {
		t.Fatal(err)
	}
	n.expect(down)
	if ok, why := n.watch.Ready(); !ok {
		t.Error(why)
	}
}

func TestFailedPollReportsNothing(t *testing.T) {
	n := newNode(t, report.Options{})
	if ok, _ := n.watch.Ready(); ok {
		t.Error("ready before the first look")
	}
	if err := n.pollTenTimes(); err != nil {
		t.Fatal(err)
	}
	n.card.state, n.card.missing = evaluation.Down, errors.New("no sysfs")
	if err := n.pollTenTimes(); !errors.Is(err, n.card.missing) {
		t.Error(err)
	}
	n.card.missing = nil
	n.BootID = func() (string, error) { return "", errors.New("no boot id") }
	if err := n.pollTenTimes(); err == nil {
		t.Error("a look without a boot id went well")
	}
	n.expect()
}

// TestACardThatHangsIsNotReady: its firmware blocks every reader, and nothing is known of
// any card meanwhile.
func TestACardThatHangsIsNotReady(t *testing.T) {
	n := newNode(t, report.Options{})
	if err := n.pollTenTimes(); err != nil {
		t.Fatal(err)
	}
	n.card.hangs = make(chan struct{})
	done := make(chan struct{})
	go func() { n.watch.Once(t.Context()); close(done) }()
	<-n.card.hangs
	n.clock.Step(pollTimeout)
	if ok, why := n.watch.Ready(); !ok {
		t.Errorf("not ready within the time of a look: %s", why)
	}
	n.clock.Step(time.Second)
	if ok, why := n.watch.Ready(); ok || why != "a poll has been running for 1m1s" {
		t.Errorf("ready %t, %q", ok, why)
	}
	n.card.hangs <- struct{}{}
	<-done
	if ok, why := n.watch.Ready(); !ok {
		t.Error(why)
	}
}
