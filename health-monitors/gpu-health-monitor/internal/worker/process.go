package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
)

// Bounds of a child's life.
const (
	// maxStuck is how many killed children may be left that the kernel does not
	// release, as in a call of a driver that hangs; no other is started meanwhile.
	maxStuck = 4
	// maxPause bounds the pause before another connection.
	maxPause = 2 * time.Minute
	// steady is how long a connection must last to reset the pause.
	steady = 10 * time.Minute
)

// Process is a child that talks to DCGM, replaced when it must be. Its fields are
// set before Poll, which one goroutine calls.
type Process struct {
	// Command makes the child's, with neither input nor output.
	Command func() *exec.Cmd
	Target  Target
	// Deadline is that of each call.
	Deadline time.Duration
	// Pause is that before the third connection; it doubles, up to two minutes: the
	// host engine never forgets the health watches of a connection.
	Pause time.Duration
	Clock clock.WithTicker
	// Called is invoked after each call that returned, Replaced for each child that was
	// given up. Both may be nil.
	Called   func(operation string, took time.Duration)
	Replaced func(trouble reading.Trouble)

	child   *child
	failure *reading.Failure // the last one
	pause   time.Duration
	notYet  time.Time // no other child before
	stuck   atomic.Int32
}

// child is one process.
type child struct {
	cmd      *exec.Cmd
	in       io.WriteCloser
	messages chan message // closed when the output of the child ends
	since    time.Time
}

// Poll takes one look; connected is when its connection began. An error is always
// a *reading.Failure.
func (p *Process) Poll(ctx context.Context, since time.Time) (r reading.Reading, connected time.Time, err error) {
	if p.child == nil {
		if p.failure != nil && p.Clock.Now().Before(p.notYet) {
			return reading.Reading{}, time.Time{}, p.failure
		}
		if failure := p.connect(ctx); failure != nil {
			return reading.Reading{}, time.Time{}, p.fail(failure)
		}
	}
	look, failure := p.call(ctx, request{Since: since.UnixMicro()})
	if failure == nil && look == nil {
		failure = &reading.Failure{Trouble: reading.Unreachable, Operation: "poll", Text: "response without a reading"}
	}
	if failure != nil {
		return reading.Reading{}, time.Time{}, p.fail(failure)
	}
	return *look, p.child.since, nil
}

// Close ends the child.
func (p *Process) Close() {
	if p.child != nil {
		p.kill()
	}
}

// connect starts a child and lets it connect.
func (p *Process) connect(ctx context.Context) *reading.Failure {
	if p.stuck.Load() >= maxStuck {
		return &reading.Failure{Trouble: reading.Hung, Operation: "exit", Text: fmt.Sprintf("%d hung processes cannot be terminated", maxStuck)}
	}
	child, err := start(p.Command())
	if err != nil {
		return &reading.Failure{Trouble: reading.Unreachable, Operation: "start", Text: err.Error()}
	}
	p.child = child
	if _, failure := p.call(ctx, request{Target: &p.Target}); failure != nil {
		return failure
	}
	child.since = p.Clock.Now()
	return nil
}

func start(cmd *exec.Cmd) (*child, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("creating a pipe: %w", err)
	}
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("creating a pipe: %w", err), in.Close())
	}
	cmd.ExtraFiles = []*os.File{theirs} // number Answers
	err = cmd.Start()
	if closed := theirs.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting the DCGM worker process: %w", err), out.Close(), in.Close())
	}
	c := &child{cmd: cmd, in: in, messages: make(chan message, 64)}
	go c.listen(out)
	return c, nil
}

// listen reads the messages of the child until its output ends.
func (c *child) listen(out io.ReadCloser) {
	defer close(c.messages)
	defer out.Close()
	decoder := json.NewDecoder(out)
	for {
		var m message
		if decoder.Decode(&m) != nil {
			return
		}
		c.messages <- m
	}
}

// call asks the child and waits for its answer; each call that begins has its own
// deadline.
func (p *Process) call(ctx context.Context, r request) (*reading.Reading, *reading.Failure) {
	at := "start"
	if err := json.NewEncoder(p.child.in).Encode(r); err != nil {
		return nil, &reading.Failure{Trouble: reading.Unreachable, Operation: at, Text: err.Error()}
	}
	timer := p.Clock.NewTimer(p.Deadline)
	defer func() { timer.Stop() }()
	for {
		select {
		case <-ctx.Done():
			return nil, &reading.Failure{Trouble: reading.Unreachable, Operation: at, Text: "the monitor is stopping"}
		case <-timer.C():
			return nil, &reading.Failure{Trouble: reading.Hung, Operation: at, Text: fmt.Sprintf("no response within %s", p.Deadline)}
		case m, ok := <-p.child.messages:
			switch {
			case !ok:
				return nil, &reading.Failure{Trouble: reading.Unreachable, Operation: at, Text: "the DCGM worker process exited"}
			case m.Answer && m.Error != "":
				return nil, &reading.Failure{Trouble: reading.Unreachable, Operation: m.Operation, Text: m.Error}
			case m.Answer:
				return m.Reading, nil
			case m.Ended != "" && p.Called != nil:
				p.Called(m.Ended, time.Duration(m.Seconds*float64(time.Second)))
			case m.Began != "":
				at = m.Began
			}
			timer.Stop()
			timer = p.Clock.NewTimer(p.Deadline)
		}
	}
}

// fail gives the child up and sets the time before which no other one is started.
func (p *Process) fail(f *reading.Failure) error {
	now := p.Clock.Now()
	if p.child != nil {
		if !p.child.since.IsZero() && now.Sub(p.child.since) >= steady {
			p.pause = 0
		}
		p.kill()
		if p.Replaced != nil {
			p.Replaced(f.Trouble)
		}
	}
	p.failure, p.notYet = f, now.Add(p.pause)
	p.pause = min(max(2*p.pause, p.Pause), maxPause)
	return f
}

// kill ends the child and does not wait for it: one that hangs in a driver does not
// end.
func (p *Process) kill() {
	c := p.child
	p.child = nil
	p.stuck.Add(1)
	_ = c.in.Close()
	_ = c.cmd.Process.Kill() // it may have ended by itself
	go func() {
		for range c.messages { // so that listen ends
		}
		_ = c.cmd.Wait()
		p.stuck.Add(-1)
	}()
}
