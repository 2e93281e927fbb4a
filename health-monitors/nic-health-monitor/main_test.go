package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/report/reporttest"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// binary is the real program with its crash points, built once.
var (
	scratch string
	binary  = sync.OnceValues(func() (string, error) { return testkit.Binary(scratch, ".") })
)

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "nic-health-monitor"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}

// process is the program on a node whose sysfs is a tree of files.
type process struct {
	t         *testing.T
	dir       string
	connector *reporttest.Connector
	cmd       *exec.Cmd
	out       *bytes.Buffer
	done      chan error
}

const port = "sys/class/infiniband/mlx5_0/ports/1/"

func newProcess(t *testing.T) *process {
	t.Helper()
	p := &process{t: t, dir: t.TempDir(), connector: reporttest.Start(t)}
	p.writeFile("boot_id", "boot-1")
	p.writeFile("net/route", "Iface\n")
	p.writeFile("sys/class/infiniband/mlx5_0/device/uevent", "PCI_SLOT_NAME=0000:3b:00.0")
	p.writeFile("sys/class/infiniband/mlx5_0/node_guid", "b83f:d203:0001:0000")
	p.writeFile("sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0")
	p.writeFile(port+"link_layer", "InfiniBand")
	p.writeFile(port+"phys_state", "5: LinkUp")
	p.writeFile(port+"state", "4: ACTIVE")
	p.writeFile(port+"counters/link_downed", "0")
	t.Cleanup(p.kill)
	return p
}

// writeFile replaces a file at once.
func (p *process) writeFile(name, content string) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		p.t.Fatal(err)
	}
}

// start starts the program; env is added to its environment.
func (p *process) start(env ...string) {
	p.t.Helper()
	path, err := binary()
	if err != nil {
		p.t.Fatal(err)
	}
	p.cmd, p.out, p.done = exec.Command(path,
		"--node-name=n1", "--sysfs-root="+filepath.Join(p.dir, "sys"), "--routes-path="+filepath.Join(p.dir, "net"),
		"--boot-id-path="+filepath.Join(p.dir, "boot_id"), "--state-dir="+filepath.Join(p.dir, "state"),
		"--platform-connector-socket="+p.connector.Target(), "--poll-interval=100ms", "--consecutive-polls=2", "--persist-time=100ms", "--steady-time=100ms",
		"--settle-time=0s", "--metrics-address=127.0.0.1:0"), &bytes.Buffer{}, make(chan error, 1)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = p.out
	if err := testkit.StartChild(p.cmd); err != nil {
		p.t.Fatal(err)
	}
	cmd, done := p.cmd, p.done
	go func() { done <- cmd.Wait() }()
}

// kill ends the program as a power cut would.
func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Error(err)
	}
	<-p.done
	p.cmd = nil
}

// stop lets the program end, with all that it remembers written down.
func (p *process) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	if err := <-p.done; err != nil {
		p.t.Errorf("the program ended with %v\n%s", err, p.out)
	}
	p.cmd = nil
}

// waitKilled waits until the program was killed by its crash point.
func (p *process) waitKilled() {
	p.t.Helper()
	select {
	case err := <-p.done:
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			p.t.Fatalf("the program ended with %v\n%s", err, p.out)
		}
		p.cmd = nil
	case <-time.After(2 * time.Minute):
		p.kill()
		p.t.Fatalf("the program was not killed at its crash point\n%s", p.out)
	}
}

// await waits for as many different events as are wanted, and compares them with want.
func (p *process) await(want ...string) {
	p.t.Helper()
	events := p.connector.Await(p.t, fmt.Sprint(want), func(events []*protos.HealthEvent) bool { return len(events) >= len(want) })
	var got []string
	for _, e := range events {
		x := record.FromProto(e)
		got = append(got, fmt.Sprintf("%s %s healthy=%t fatal=%t %s %s %s", x.CheckName, x.ErrorCode[0], x.IsHealthy, x.IsFatal,
			x.RecommendedAction, x.EntitiesImpacted[0].EntityValue+"/"+x.EntitiesImpacted[1].EntityValue, x.Metadata[record.MetadataBootID]))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		p.t.Errorf("events (-want +got):\n%s", diff)
	}
}

const (
	down     = "InfiniBandStateCheck NIC_PORT_DOWN healthy=false fatal=true REPLACE_VM mlx5_0/1 boot-1"
	outlasts = "InfiniBandStateCheck NIC_PORT_DOWN healthy=false fatal=true REPLACE_VM mlx5_0/1 boot-2"
	active   = "InfiniBandStateCheck NIC_PORT_DOWN healthy=true fatal=false NONE mlx5_0/1 boot-2"
	downed   = "InfiniBandDegradationCheck link_downed healthy=false fatal=true REPLACE_VM mlx5_0/1 boot-1"
	rebooted = "InfiniBandDegradationCheck link_downed healthy=true fatal=false NONE mlx5_0/1 boot-2"
)

// TestALinkIsLostAndComesBack: with a kill at every point where something is
// reported, each fault and each end comes once, under one id.
func TestALinkIsLostAndComesBack(t *testing.T) {
	for _, point := range []string{"", "judged:1", "outboxed:1", "published:1", "removed:1"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			p := newProcess(t)
			env := "NVSENTINEL_CRASH=nic-health-monitor/" + point
			if point == "" {
				env = "NVSENTINEL_CRASH="
			}
			again := func() { // restarts, with the crash point that the next report reaches
				p.kill()
				p.start(env)
			}
			settle := func() { // after the crash, or without one
				if point != "" {
					p.waitKilled()
					p.start()
				}
			}
			p.start()
			testkit.Until(t, time.Minute, func() bool { return strings.Contains(p.state(), "mlx5_0") })
			p.stop()
			again()
			p.writeFile(port+"counters/link_downed", "1")
			settle()
			p.await(downed)
			again()
			p.writeFile(port+"state", "1: DOWN")
			settle()
			p.await(downed, down)
			again()
			p.writeFile("boot_id", "boot-2")
			settle()
			p.await(downed, down, rebooted, outlasts)
			again()
			p.writeFile(port+"state", "4: ACTIVE")
			settle()
			p.await(downed, down, rebooted, outlasts, active)
		})
	}
}

// state is what the program has written down.
func (p *process) state() string {
	data, err := os.ReadFile(filepath.Join(p.dir, "state", "outbox.db"))
	if err != nil {
		return ""
	}
	return string(data)
}

func TestCommandLine(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string // in the output of a failure; empty for success
	}{
		{[]string{"--node-name=n1"}, ""},
		{[]string{"--node-name=n1", "--processing-strategy=PERSIST_ONLY", "--include-devices=^mlx5_[0-7]$"}, ""},
		{[]string{}, "node-name"},
		{[]string{"--node-name=n1", "--processingStrategy=never"}, "PERSIST_ONLY"},
		{[]string{"--node-name=n1", "--exclude-devices=("}, "exclude-devices"},
		{[]string{"--node-name=n1", "--poll-interval=1ms", "--consecutive-polls=0", "--outbox-mib=0"}, "pollInterval"},
		{[]string{"--node-name=n1", "--steady-time=-1s"}, "steady-time"},
	} {
		out, err := exec.Command(path, append([]string{"-check-config"}, c.args...)...).CombinedOutput()
		if (err == nil) != (c.want == "") || !strings.Contains(string(out), c.want) {
			t.Errorf("%v: %v\n%s", c.args, err, out)
		}
	}
}
