//go:build cgo

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/dcgmsim"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// The traps of policy callbacks, by which the monitor does not learn of XIDs: the
// simulated DCGM does what the real one was measured to, seen by go-dcgm's own
// listeners.
func TestWhyPoliciesAreNotListenedTo(t *testing.T) {
	t.Run("the second XID within five seconds is lost", func(t *testing.T) {
		l := newListener(t)
		l.does("connect", "listen a xid 1")
		l.engine.XID(0, 31, 13)
		l.hears("a: GPU 0 XID 31") // go-dcgm keeps one event of a condition
		l.engine.XID(1, 13)
		l.hears("a: GPU 1 XID 13")
	})
	t.Run("one listener's end silences the others, and who comes after them", func(t *testing.T) {
		l := newListener(t)
		l.does("connect", "listen a dbe 1", "listen b xid 1")
		l.cancels("a")
		l.does("listen c xid 1")
		if n := l.engine.Calls("PolicyRegister"); n != 2 {
			t.Errorf("%d registrations: c's XIDs were registered again", n)
		}
		l.engine.XID(0, 79)
		l.does("listen d xid 2") // in a group of its own
		l.engine.XID(1, 79)
		l.hears("d: GPU 1 XID 79")
	})
	t.Run("a listener from before a new connection silences the next", func(t *testing.T) {
		l := newListener(t)
		l.does("connect", "listen a xid 1", "disconnect", "connect", "listen b xid 1")
		if n := l.engine.Calls("PolicyRegister"); n != 1 {
			t.Errorf("%d registrations: b's was made", n)
		}
	})
	t.Run("in the right order the next one hears", func(t *testing.T) {
		l := newListener(t)
		l.does("connect", "listen a xid 1")
		l.cancels("a")
		l.does("disconnect", "connect", "listen b xid 1")
		l.engine.XID(0, 79)
		l.hears("b: GPU 0 XID 79")
	})
	t.Run("an engine that dies closes no channel", func(t *testing.T) {
		l := newListener(t)
		l.does("connect", "listen a xid 1")
		l.engine.Stop()
		l.does("ask")
		l.hears("Host engine connection invalid/disconnected")
		l.does("cancel a")
		l.hears("a: closed")
	})
}

// listener is a process that listens with go-dcgm and follows the commands of a test.
type listener struct {
	*testing.T
	engine *dcgmsim.Engine
	in     io.Writer
	out    *bufio.Scanner
	heard  []string // and no test waited for
}

func newListener(t *testing.T) *listener {
	t.Helper()
	libs := simulated(t)
	l := &listener{T: t, engine: dcgmsim.New(t, 2)}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // what never comes ends the test
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(append(os.Environ(), l.engine.Environment(libs)...), asProgram+"="+asListener)
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := testkit.StartChild(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	l.in, l.out = in, bufio.NewScanner(out)
	return l
}

// does has the process do things, one after the other.
func (l *listener) does(commands ...string) {
	l.Helper()
	for _, c := range commands {
		if _, err := fmt.Fprintln(l.in, c); err != nil {
			l.Fatal(err)
		}
		for {
			line := l.line()
			if line == "done "+c {
				break
			}
			l.heard = append(l.heard, line)
		}
	}
}

// cancels ends a listener, and waits until it is unregistered.
func (l *listener) cancels(client string) {
	l.Helper()
	l.does("cancel " + client)
	l.hears(client + ": closed")
	testkit.Until(l, 2*time.Minute, func() bool { return l.engine.Calls("PolicyUnregister") == 1 })
}

// hears waits for these lines and no others.
func (l *listener) hears(want ...string) {
	l.Helper()
	for _, w := range want {
		if len(l.heard) == 0 {
			l.heard = append(l.heard, l.line())
		}
		if l.heard[0] != w {
			l.Fatalf("heard %q, want %q", l.heard[0], w)
		}
		l.heard = l.heard[1:]
	}
}

func (l *listener) line() string {
	l.Helper()
	if !l.out.Scan() {
		l.Fatalf("the listener ended: %v", l.out.Err())
	}
	return l.out.Text()
}

// listening is the process.
type listening struct {
	mu      sync.Mutex
	cleanup func()
	cancels map[string]context.CancelFunc
	groups  map[string]dcgm.GroupHandle // of this connection, by number
}

func (p *listening) send(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Printf(format+"\n", args...)
}

// listen follows the commands on standard input.
func listen() {
	p := &listening{cancels: map[string]context.CancelFunc{}}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if err := p.do(strings.Fields(in.Text())); err != nil {
			p.send("%s", lastLine(err))
		}
		p.send("done %s", in.Text())
	}
}

func lastLine(err error) string {
	text := err.Error()
	return strings.TrimSpace(text[strings.LastIndex(text, ":")+1:])
}

func (p *listening) do(words []string) (err error) {
	switch words[0] {
	case "connect":
		p.groups = map[string]dcgm.GroupHandle{}
		p.cleanup, err = dcgm.Init(dcgm.Standalone, "localhost", "0")
	case "disconnect":
		p.cleanup()
	case "cancel":
		p.cancels[words[1]]()
	case "ask":
		if _, err = dcgm.GetHostengineVersionInfo(); err == nil {
			err = errors.New("the engine answers")
		}
	case "listen":
		err = p.listen(words[1], words[2], words[3])
	}
	return err
}

// group is that of the number, with both GPUs.
func (p *listening) group(number string) (dcgm.GroupHandle, error) {
	if g, made := p.groups[number]; made {
		return g, nil
	}
	g, err := dcgm.CreateGroup("group-" + number)
	for id := range uint(2) {
		if err == nil {
			err = dcgm.AddEntityToGroup(g, dcgm.FE_GPU, id)
		}
	}
	p.groups[number] = g
	return g, err
}

// listen listens as somebody, in the group with the number.
func (p *listening) listen(client, what, number string) error {
	group, err := p.group(number)
	if err != nil {
		return err
	}
	condition := dcgm.XidPolicy
	if what == "dbe" {
		condition = dcgm.DbePolicy
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancels[client] = cancel
	violations, err := dcgm.ListenForPolicyViolationsForGroup(ctx, group, condition)
	if err != nil {
		return err
	}
	go func() {
		for v := range violations {
			p.send("%s: GPU %d XID %d", client, v.GPU, v.Data.(dcgm.XidPolicyCondition).ErrNum)
		}
		p.send("%s: closed", client)
	}()
	return nil
}
