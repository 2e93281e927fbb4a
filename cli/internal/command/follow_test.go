package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/cli/internal/command"
	"github.com/nvidia/nvsentinel/cli/timeline"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// pipe is an output that is read while it is written to.
type pipe struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *pipe) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// following is a command that goes on until Ctrl-C.
type following struct {
	t         *testing.T
	out, errs pipe
	stop      context.CancelFunc
	code      chan int
}

func follow(t *testing.T, p command.Program, args ...string) *following {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	ctx, stop := context.WithCancel(t.Context())
	f := &following{t: t, stop: stop, code: make(chan int, 1)}
	p.Out, p.Err, p.Clock = &f.out, &f.errs, clock.RealClock{}
	go func() { f.code <- p.Run(ctx, args) }()
	return f
}

// waitForOutput waits until the output holds a text.
func (f *following) waitForOutput(text string) {
	f.t.Helper()
	defer func() {
		if f.t.Failed() {
			f.t.Logf("it does not say %q:\n%s\n%s", text, f.out.String(), f.errs.String())
		}
	}()
	testkit.Until(f.t, 2*time.Minute, func() bool { return strings.Contains(f.out.String(), text) })
}

// ctrlC ends it, and returns what it has written.
func (f *following) ctrlC() string {
	f.t.Helper()
	f.stop()
	select {
	case code := <-f.code:
		if code != command.ExitComplete {
			f.t.Errorf("exit code %d: %s", code, f.errs.String())
		}
	case <-time.After(2 * time.Minute):
		f.t.Fatal("it does not end")
	}
	return f.out.String()
}

// uncordon makes the world's node schedulable, as a person would.
func (w *world) uncordon(t *testing.T) {
	t.Helper()
	testkit.Until(t, 2*time.Minute, func() bool {
		node, err := kube.ReadNode(t.Context(), w.cluster.Client(), w.node.Name)
		if err == nil {
			_, err = kube.PatchNode(t.Context(), w.cluster.Client(), node, func(n *corev1.Node) { n.Spec.Unschedulable = false })
		}
		return err == nil
	})
}

// TestWhyFollows: each change in the store and on the Node is printed below, once, and
// none of it needs a terminal.
func TestWhyFollows(t *testing.T) {
	w := newWorld(t)
	f := follow(t, command.Program{Store: w.dsn}, "why", w.node.Name, "--follow", "--kubeconfig", w.viewer)
	f.waitForOutput(w.node.Name + ": remediating")
	w.uncordon(t)
	f.waitForOutput("  Node: Ready, schedulable")
	f.waitForOutput("! the Node is schedulable although a fault is open")
	storetest.MustAppend(t, w.records, storetest.Record(w.node.Name, func(r *record.Record) {
		r.Event.ProcessingStrategy, r.Event.Message = record.PersistOnly, "only observed"
	}))
	f.waitForOutput("only observed")
	out := f.ctrlC()
	if n := strings.Count(out, line); n != 1 {
		t.Errorf("the fault's line is told %d times:\n%s", n, out)
	}
	if strings.Contains(out, "\x1b") {
		t.Errorf("not for a pipe: %q", out)
	}
	if problems := f.errs.String(); problems != "" {
		t.Errorf("with the rights of docs/reference/cli.md: %s", problems)
	}
}

// TestWithoutTheRightToWatch: a failed watch is reported once, and what it would have
// watched is polled together with the store.
func TestWithoutTheRightToWatch(t *testing.T) {
	w := newWorld(t)
	w.apply(t, `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: no-watch}
rules:
  - {apiGroups: [""], resources: [nodes], verbs: [get, list]}
  - {apiGroups: [""], resources: [configmaps], verbs: [get]}
  - {apiGroups: [janitor.dgxc.nvidia.com], resources: [rebootnodes, terminatenodes, gpuresets], verbs: [list]}
  - {apiGroups: [remediation.medik8s.io], resources: [nodehealthchecks], verbs: [list]}
`)
	f := follow(t, command.Program{Store: w.dsn}, "why", w.node.Name, "-f", "--kubeconfig", w.account(t, "no-watch", "no-watch"))
	f.waitForOutput("remediating")
	w.uncordon(t)
	f.waitForOutput("  Node: Ready, schedulable")
	f.ctrlC()
	if n := strings.Count(f.errs.String(), "watch failed, polling together with the store"); n != 4 {
		t.Errorf("of four watches it says %d times that they are none: %s", n, f.errs.String())
	}
}

// TestStatusWatches: the fleet again when something has changed, as text, in place
// on a terminal, and as one line of JSON each.
func TestStatusWatches(t *testing.T) {
	w := newWorld(t)
	args := []string{"status", "--watch", "--kubeconfig", w.viewer}
	piped, shown := follow(t, command.Program{Store: w.dsn}, args...), follow(t, command.Program{Store: w.dsn, Terminal: true}, args...)
	data := follow(t, command.Program{Store: w.dsn}, append(args, "-o", "json")...)
	for _, f := range []*following{piped, shown} {
		f.waitForOutput(w.node.Name + "  remediating")
	}
	data.waitForOutput(`"phase":"remediating"`)
	storetest.MustAppend(t, w.records, storetest.Record(w.node.Name, func(r *record.Record) {
		r.Event.ProcessingStrategy, r.Event.IsHealthy, r.Event.Agent, r.Event.CheckName = record.PersistOnly, false, w.fault.Event.Agent, w.fault.Event.CheckName
	}))
	data.waitForOutput(`"orphaned":[`)
	piped.waitForOutput("1 open faults of publishers")
	shown.waitForOutput("1 open faults of publishers")
	if out := piped.ctrlC(); strings.Contains(out, "\x1b") || strings.Count(out, "emergency stop") < 2 {
		t.Errorf("piped: %q", out)
	}
	if out := shown.ctrlC(); !strings.HasPrefix(out, "\x1b[H") {
		t.Errorf("on a terminal: %q", out)
	}
	for text := range strings.Lines(data.ctrlC()) {
		var fleet timeline.Fleet
		if err := json.Unmarshal([]byte(text), &fleet); err != nil || fleet.Total < 1 {
			t.Errorf("a line of JSON: %v: %.200s", err, text)
		}
	}
}
