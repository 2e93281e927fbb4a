package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/kmsgtest"
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
	if scratch, err = os.MkdirTemp("", "syslog-health-monitor"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}

// process is the program on a node of files, with a kernel log device.
type process struct {
	t         *testing.T
	dir       string
	kernel    *kmsgtest.Device
	connector *reporttest.Connector
	extra     []string
	written   int

	cmd  *exec.Cmd
	out  *bytes.Buffer
	done chan error
}

func newProcess(t *testing.T) *process {
	t.Helper()
	p := &process{t: t, dir: t.TempDir(), connector: reporttest.Start(t)}
	p.writeFile("boot_id", "boot-1")
	var err error
	if p.kernel, err = kmsgtest.Open(filepath.Join(p.dir, "kernel")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if err := p.kernel.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *process) writeFile(name, content string) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		p.t.Fatal(err)
	}
}

// write makes the kernel write count lines with an XID, each with a pid of its own.
func (p *process) write(count int) {
	p.t.Helper()
	for range count {
		p.written++
		if err := p.kernel.Print("eth0: link up", fmt.Sprintf("NVRM: Xid (PCI:0000:3b:00): 79, pid=%d, fallen", p.written)); err != nil {
			p.t.Fatal(err)
		}
	}
}

// start starts the program; env is added to its environment.
func (p *process) start(env ...string) {
	p.t.Helper()
	path, err := binary()
	if err != nil {
		p.t.Fatal(err)
	}
	args := append([]string{
		"--node-name=n1", "--source=kmsg", "--log-path=" + p.kernel.Path(), "--boot-id-path=" + filepath.Join(p.dir, "boot_id"),
		"--state-dir=" + filepath.Join(p.dir, "state"), "--platform-connector-socket=" + p.connector.Target(),
		"--metadata-path=" + filepath.Join(p.dir, "gpu_metadata.json"), "--settle-time=500ms", "--look-back=876000h", "--metrics-address=127.0.0.1:0",
	}, p.extra...)
	p.cmd, p.out, p.done = exec.Command(path, args...), &bytes.Buffer{}, make(chan error, 1)
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
		p.t.Fatalf("the program was not killed at its crash point\n%s", p.out)
	}
}

var pid = regexp.MustCompile(`pid=(\d+)`)

// check waits for every line and a healthy event at the end, and fails if a
// line came under two ids, out of order, or with the same seq.
func (p *process) check(healthy int) {
	p.t.Helper()
	events := p.connector.Await(p.t, "all lines", func(events []*protos.HealthEvent) bool { return len(events) >= p.written+healthy })
	var got, want []string
	last := uint64(0)
	for _, e := range events {
		seq, err := strconv.ParseUint(e.Metadata["seq"], 10, 64)
		if err != nil || seq <= last {
			p.t.Errorf("seq %q after %d", e.Metadata["seq"], last)
		}
		last = seq
		if m := pid.FindStringSubmatch(e.Message); m != nil {
			got = append(got, m[1])
		} else {
			got = append(got, e.Message)
		}
	}
	for i := range p.written {
		want = append(want, fmt.Sprint(i+1))
	}
	for range healthy {
		want = append(want, "No Health Failures")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		p.t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestACrashAtAnyPointLosesAndDoublesNothing(t *testing.T) {
	for _, point := range []string{"read", "outboxed", "published", "removed"} {
		for hit := 1; hit <= 2; hit++ {
			t.Run(fmt.Sprintf("%s:%d", point, hit), func(t *testing.T) {
				t.Parallel()
				p := newProcess(t)
				p.extra = []string{"--every-event"}
				p.write(700) // more than one read, and several batches
				p.start(fmt.Sprintf("NVSENTINEL_CRASH=syslog-health-monitor/%s:%d", point, hit))
				p.waitKilled()
				p.write(3)
				p.start()
				p.check(0)
				p.kill()
				p.kernel.Reboot()
				p.writeFile("boot_id", "boot-2")
				p.start()
				p.check(3)
				p.kill()
			})
		}
	}
}

func TestKillsAtAnyMomentLoseAndDoubleNothing(t *testing.T) {
	p := newProcess(t)
	p.extra = []string{"--every-event"}
	for round := range 40 {
		acknowledged := len(p.connector.Distinct(t))
		p.start()
		for range 3 {
			p.write(1 + rand.IntN(60))
		}
		if round%4 == 0 {
			p.connector.Cut()
			p.connector.Listen(t)
		}
		enough := acknowledged + rand.IntN(p.written-acknowledged+1)
		if round%7 != 0 { // every now and then it dies before it has done anything
			p.connector.Await(t, "some lines", func(events []*protos.HealthEvent) bool { return len(events) >= enough })
		}
		p.kill()
	}
	p.start()
	p.check(0)
}

// TestKillsInAStormLoseNoFirstAndNoCount: 10,000 events of one kind, written while
// the program is killed again and again, are each reported or counted once; faults
// of other GPUs come between them.
func TestKillsInAStormLoseNoFirstAndNoCount(t *testing.T) {
	const rounds, each = 10, 1000
	p := newProcess(t)
	for round := range rounds {
		p.start()
		p.append(each, func(i int) string {
			return fmt.Sprintf("NVRM: Xid (PCI:0000:3b:00): 31, pid=%d, name=python", i)
		})
		p.append(1, func(int) string { return fmt.Sprintf("NVRM: Xid (PCI:0000:%02x:00): 79, pid=%d, fallen", round, round) })
		seen := rand.IntN(round + 2)
		p.connector.Await(t, "some faults", func(events []*protos.HealthEvent) bool { return len(tally(t, events).fallen) >= min(seen, round) })
		p.kill()
	}
	p.start()
	events := p.connector.Await(t, "the whole storm", func(events []*protos.HealthEvent) bool {
		got := tally(t, events)
		return got.storm >= rounds*each && len(got.fallen) == rounds
	})
	if got := tally(t, events); got.storm != rounds*each || got.records > 100 {
		t.Errorf("%d events in %d records, want %d", got.storm, got.records, rounds*each)
	}
}

// tallied is what came of a storm.
type tallied struct {
	records, storm int
	fallen         map[string]bool
}

func tally(t *testing.T, events []*protos.HealthEvent) tallied {
	t.Helper()
	out := tallied{fallen: map[string]bool{}}
	for _, e := range events {
		n, _ := record.FromProto(e).Repeats()
		switch e.ErrorCode[0] {
		case "31":
			out.records++
			out.storm += n
		case "79":
			if n != 1 || out.fallen[e.Message] {
				t.Fatalf("%d of %s", n, e.Message)
			}
			out.fallen[e.Message] = true
		}
	}
	return out
}

// append has the kernel write count lines.
func (p *process) append(count int, text func(i int) string) {
	p.t.Helper()
	for i := range count {
		if err := p.kernel.Print(text(i)); err != nil {
			p.t.Fatal(err)
		}
	}
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
		{[]string{"--node-name=n1", "--processingStrategy=PERSIST_ONLY"}, ""},
		{[]string{"--node-name=n1", "--processing-strategy=PERSIST_ONLY"}, ""},
		{[]string{"--node-name=n1", "--source=file"}, "no longer supported"},
		{[]string{"--node-name=n1", "--log-kernel-only"}, "log-kernel-only"},
		{[]string{"--node-name=n1", "--processing-strategy=persist_only"}, "PERSIST_ONLY"},
		{[]string{"--node-name=n1", "--processingStrategy="}, "PERSIST_ONLY"},
		{[]string{}, "node-name"},
		{[]string{"--node-name=n1", "--source=journal"}, ""},
		{[]string{"--node-name=n1", "--source=dmesg"}, "one of kmsg, journal"},
		{[]string{"--node-name=n1", "--journalctl="}, "journalctl"},
		{[]string{"--node-name=n1", "--settle-time=-1s", "--outbox-mib=0", "--state-dir="}, "settle-time"},
		{[]string{"--node-name=n1", "--settle=1s"}, "settle"},
	} {
		out, err := exec.Command(path, append([]string{"-check-config"}, c.args...)...).CombinedOutput()
		if (err == nil) != (c.want == "") || !strings.Contains(string(out), c.want) {
			t.Errorf("%v: %v\n%s", c.args, err, out)
		}
	}
}
