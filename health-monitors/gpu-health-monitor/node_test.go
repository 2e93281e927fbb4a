package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/check"
	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/dcgmsim"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/report/reporttest"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// asProgram is set where the test binary is the monitor, or the process of its that
// talks to DCGM: so the race detector sees them too, and nothing is built twice.
const asProgram = "GPU_HEALTH_MONITOR_PROGRAM"

// asListener is its value where the test binary listens for policy violations: what
// go-dcgm knows of listeners belongs to the whole process.
const asListener = "listener"

var (
	scratch string
	library = sync.OnceValue(func() string { return filepath.Join(scratch, "lib") })
)

// impatient is a configuration with times that the program's own bounds refuse.
type impatient struct{ Config }

// Validate accepts it.
func (impatient) Validate() error { return nil }

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == asListener {
		listen()
		return
	}
	if os.Getenv(asProgram) != "" {
		if len(os.Args) == 2 && os.Args[1] == WorkerArgument {
			talk()
			return
		}
		daemon.Main(check.Agent, purpose, impatient{Default}, func(ctx context.Context, d *daemon.Daemon, cfg impatient) error {
			return build(ctx, d, cfg.Config)
		})
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if scratch, err = os.MkdirTemp("", "gpu-health-monitor"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(scratch)
	return m.Run()
}

var built sync.Mutex

// simulated builds the simulated library once.
func simulated(t *testing.T) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	dir := library()
	if _, err := os.Stat(filepath.Join(dir, "libdcgm.so.4")); err == nil {
		return dir
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	err := dcgmsim.Build(t.Context(), dir)
	if errors.Is(err, dcgmsim.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// node is a node with a simulated host engine, a connector, and the monitor.
type node struct {
	t                *testing.T
	dir              string
	libs             string
	engine           *dcgmsim.Engine
	connector        *reporttest.Connector
	args             []string
	readEvents       int    // events that were looked at
	program          string // what is started; empty is this test
	unreachableAfter string // how long DCGM may be away before that is reported

	cmd  *exec.Cmd
	out  *output
	done chan struct{}
}

func newNode(t *testing.T, gpus uint, args ...string) *node {
	t.Helper()
	n := &node{t: t, dir: t.TempDir(), libs: simulated(t), engine: dcgmsim.New(t, gpus), connector: reporttest.Start(t), args: args, unreachableAfter: "300ms"}
	n.writeFile("boot_id", "boot-1")
	t.Cleanup(n.kill)
	return n
}

func (n *node) writeFile(name, content string) {
	n.t.Helper()
	path := filepath.Join(n.dir, name)
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		n.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		n.t.Fatal(err)
	}
}

// start starts the monitor.
func (n *node) start() {
	n.t.Helper()
	n.writeFile("config.toml", fmt.Sprintf("[checks.GpuDcgmConnectivityFailure]\nfor = %q\n", n.unreachableAfter))
	args := append([]string{
		"--config=" + filepath.Join(n.dir, "config.toml"),
		"--node-name=n1", "--boot-id-path=" + filepath.Join(n.dir, "boot_id"), "--state-dir=" + filepath.Join(n.dir, "state"),
		"--platform-connector-socket=" + n.connector.Target(), "--metadata-path=" + filepath.Join(n.dir, "gpu_metadata.json"),
		"--metrics-address=127.0.0.1:0", "--poll-interval=20ms", "--settle-time=0s", "--reconnect-backoff=50ms", "--call-deadline=10s",
	}, n.args...)
	program := n.program
	if program == "" {
		program = os.Args[0]
	}
	n.cmd, n.out, n.done = exec.Command(program, args...), &output{}, make(chan struct{})
	n.cmd.Env = append(append(os.Environ(), n.engine.Environment(n.libs)...), asProgram+"=1")
	n.cmd.Stderr = n.out
	n.cmd.WaitDelay = time.Second // a child that hangs holds the pipe
	if err := testkit.StartChild(n.cmd); err != nil {
		n.t.Fatal(err)
	}
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait() // it is killed
		close(done)
	}(n.cmd, n.done)
}

// kill ends the monitor as a power cut would.
func (n *node) kill() {
	if n.cmd == nil {
		return
	}
	if err := n.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		n.t.Error(err)
	}
	<-n.done
	n.cmd = nil
	if n.engine.Calls("PolicyRegister") > 0 {
		n.t.Error("a policy was registered")
	}
	if n.countLogLines("DATA RACE") > 0 {
		n.t.Error("the race detector found something")
	}
	if n.t.Failed() {
		n.t.Logf("the monitor said:\n%s", n.out)
	}
}

// next waits for the next event.
func (n *node) next(what string) record.Event {
	n.t.Helper()
	events := n.connector.Await(n.t, what, func(events []*protos.HealthEvent) bool { return len(events) > n.readEvents })
	n.readEvents++
	return record.FromProto(events[n.readEvents-1])
}

// eventLine is an event in one line.
func eventLine(e record.Event) string {
	var names []string
	for _, x := range e.EntitiesImpacted {
		names = append(names, x.EntityType+"="+x.EntityValue)
	}
	kind := "warning"
	switch {
	case e.IsHealthy:
		kind = "healthy"
	case e.IsFatal:
		kind = "fatal"
	}
	return fmt.Sprintf("%s %s [%s] %s %s %s", e.CheckName, strings.Join(e.ErrorCode, ","), strings.Join(names, " "), kind, e.RecommendedAction, e.ProcessingStrategy)
}

// expect waits for the next event and compares it.
func (n *node) expect(want string) {
	n.t.Helper()
	if got := eventLine(n.next(want)); got != want {
		n.t.Fatalf("told\n  %s, want\n  %s", got, want)
	}
}

// expectAll waits for as many events and compares them, in any order.
func (n *node) expectAll(want ...string) {
	n.t.Helper()
	var got []string
	for range want {
		got = append(got, eventLine(n.next(strings.Join(want, ", "))))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		n.t.Fatalf("told\n  %s, want\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// expectIdle waits until DCGM was polled looks times more, and fails if anything was
// reported.
func (n *node) expectIdle(looks int) {
	n.t.Helper()
	before := n.engine.Calls("GetValuesSince")
	testkit.Until(n.t, 2*time.Minute, func() bool { return n.engine.Calls("GetValuesSince") >= before+looks })
	if events := n.connector.Distinct(n.t); len(events) > n.readEvents {
		n.t.Fatalf("told %s, want nothing", eventLine(record.FromProto(events[n.readEvents])))
	}
}

// reconnected waits until the monitor has another connection and has polled DCGM several
// times without a report.
func (n *node) reconnected(sets int) {
	n.t.Helper()
	n.await("another connection", func() bool { return n.engine.Calls("HealthSet") > sets })
	n.expectIdle(20)
}

// await waits until something is so.
func (n *node) await(what string, so func() bool) {
	n.t.Helper()
	n.t.Logf("waiting for %s", what)
	testkit.Until(n.t, 2*time.Minute, so)
}
