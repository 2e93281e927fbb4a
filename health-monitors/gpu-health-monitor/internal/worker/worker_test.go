package worker

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// asChild is the environment variable that makes the test binary the child. Its value is
// the behaviour.
const asChild = "WORKER_TEST_CHILD"

func TestMain(m *testing.M) {
	if how := os.Getenv(asChild); how != "" {
		Serve(os.Stdin, os.NewFile(Answers, "answers"), &pretended{how: how}, func() { os.Exit(0) })
		return
	}
	os.Exit(m.Run())
}

// pretended is a library that behaves as how names.
type pretended struct {
	how   string
	steps Steps
}

func (p *pretended) Connect(target Target, steps Steps) error {
	p.steps = steps
	return steps.Do("Init", func() error {
		if p.how == "refuses" {
			return errors.New("nobody at " + target.Address)
		}
		return nil
	})
}

func (p *pretended) Poll(since time.Time) (r reading.Reading, err error) {
	err = p.steps.Do("HealthCheck", func() error {
		switch p.how {
		case "hangs":
			select {}
		case "dies":
			os.Exit(127)
		case "fails":
			return errors.New("Host engine connection invalid/disconnected")
		}
		return nil
	})
	r.Engine, r.Next = "4.6.0", since.UnixMicro()
	return r, err
}

func process(t *testing.T, how string) *Process {
	t.Helper()
	p := &Process{
		Command: func() *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env, cmd.Stderr = append(os.Environ(), asChild+"="+how), os.Stderr
			return cmd
		},
		Target: Target{Address: "h:1"}, Deadline: time.Minute, Pause: time.Hour, Clock: clock.RealClock{},
	}
	t.Cleanup(p.Close)
	return p
}

func TestPoll(t *testing.T) {
	p := process(t, "answers")
	var called []string
	p.Called = func(operation string, _ time.Duration) { called = append(called, operation) }
	for range 2 {
		r, connected, err := p.Poll(t.Context(), time.UnixMicro(7))
		if err != nil || r.Engine != "4.6.0" || r.Next != 7 || connected.IsZero() {
			t.Fatalf("%+v %s %v", r, connected, err)
		}
	}
	if got := strings.Join(called, " "); got != "Init HealthCheck HealthCheck" {
		t.Errorf("calls %s", got)
	}
}

func TestChildIsAbandoned(t *testing.T) {
	for _, c := range []struct {
		how, operation, text string
	}{
		{"refuses", "Init", "nobody at h:1"},
		{"fails", "HealthCheck", "disconnected"},
		{"dies", "HealthCheck", "exited"},
	} {
		t.Run(c.how, func(t *testing.T) {
			p := process(t, c.how)
			gone := 0
			p.Replaced = func(reading.Trouble) { gone++ }
			for attempt := 1; attempt <= 2; attempt++ { // the second at once, then after a pause
				_, _, err := p.Poll(t.Context(), time.Time{})
				f, ok := errors.AsType[*reading.Failure](err)
				if !ok || f.Trouble != reading.Unreachable || f.Operation != c.operation || !strings.Contains(f.Text, c.text) || gone != attempt {
					t.Fatalf("attempt %d: %v, %d given up", attempt, err, gone)
				}
			}
			if _, _, err := p.Poll(t.Context(), time.Time{}); err == nil || gone != 2 {
				t.Errorf("in the pause: %v, %d given up", err, gone)
			}
			testkit.Until(t, time.Minute, func() bool { return p.stuck.Load() == 0 })
		})
	}
}

// TestACallThatHangs: a call that hangs is given up after its deadline, and the failure
// names it. On a slow machine the start of a child may count as a hang too.
func TestACallThatHangs(t *testing.T) {
	p := process(t, "hangs")
	p.Deadline, p.Pause = time.Second, time.Millisecond
	var gone []reading.Trouble
	p.Replaced = func(trouble reading.Trouble) { gone = append(gone, trouble) }
	testkit.Until(t, 2*time.Minute, func() bool {
		_, _, err := p.Poll(t.Context(), time.Time{})
		f, ok := errors.AsType[*reading.Failure](err)
		if !ok || f.Trouble != reading.Hung {
			t.Fatalf("%v", err)
		}
		return f.Operation == "HealthCheck" && strings.Contains(f.Text, "no response within 1s")
	})
	if len(gone) == 0 || gone[0] != reading.Hung {
		t.Errorf("given up: %v", gone)
	}
	testkit.Until(t, time.Minute, func() bool { return p.stuck.Load() == 0 })
}

// TestTheEndOfTheMonitorEndsTheChild: also while a call does not come back.
func TestTheEndOfTheMonitorEndsTheChild(t *testing.T) {
	p := process(t, "hangs")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	began := make(chan struct{}, 1)
	p.Called = func(string, time.Duration) { began <- struct{}{} } // of Init; HealthCheck is next
	go func() {
		defer close(done)
		_, _, err := p.Poll(ctx, time.Time{})
		if err == nil {
			t.Error("a look that was cancelled answered")
		}
	}()
	<-began
	cancel()
	<-done
	testkit.Until(t, time.Minute, func() bool { return p.stuck.Load() == 0 })

	// Its input ends, and nobody kills it.
	c, err := start(p.Command())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.in.Close(); err != nil {
		t.Fatal(err)
	}
	for range c.messages { // until it is gone
	}
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("the child ended with %v", err)
	}
}

// TestChildrenThatCannotBeEndedAreBounded: while the kernel does not release killed
// children, only a bounded number of others is started.
func TestChildrenThatCannotBeEndedAreBounded(t *testing.T) {
	p := process(t, "answers")
	p.stuck.Store(maxStuck)
	_, _, err := p.Poll(t.Context(), time.Time{})
	if f, ok := errors.AsType[*reading.Failure](err); !ok || f.Trouble != reading.Hung || f.Operation != "exit" {
		t.Errorf("%v", err)
	}
	p.stuck.Store(0)
}
