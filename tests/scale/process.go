package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nvidia/nvsentinel/internal/testkit"
)

// process is a program of the suite that runs until it is stopped. Unlike a
// kubelet nobody starts it again by itself: one that ends unasked fails the run.
type process struct {
	name, path, log string
	args            []string

	mu            sync.Mutex
	cmd           *exec.Cmd
	over          chan struct{} // closed when the present run has ended
	stopRequested bool          // its end is wanted
}

// start runs the program; its output is added to the log.
func (p *process) start() error {
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(p.path, p.args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := testkit.StartChild(cmd); err != nil {
		return fmt.Errorf("starting %s: %w", p.name, err)
	}
	over := make(chan struct{})
	p.mu.Lock()
	p.cmd, p.over, p.stopRequested = cmd, over, false
	p.mu.Unlock()
	go func() {
		_ = cmd.Wait() // how it ended is of no use, that it did is
		close(over)
	}()
	return nil
}

// pid is that of the present run.
func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// alive is an error, with the end of the log, if the program has ended unasked.
func (p *process) alive() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.over:
		if !p.stopRequested {
			return fmt.Errorf("%s ended unasked: %s", p.name, tail(p.log, 5))
		}
	default:
	}
	return nil
}

// kill ends the program as a power cut would.
func (p *process) kill() { p.end(context.Background(), syscall.SIGKILL) }

// stop ends the program politely, and by force when ctx ends first.
func (p *process) stop(ctx context.Context) { p.end(ctx, syscall.SIGTERM) }

func (p *process) end(ctx context.Context, by syscall.Signal) {
	p.mu.Lock()
	if p.cmd == nil {
		p.mu.Unlock()
		return
	}
	p.stopRequested = true
	pid, over := p.cmd.Process.Pid, p.over
	p.mu.Unlock()
	_ = syscall.Kill(-pid, by) // it may have ended
	select {
	case <-over:
	case <-ctx.Done():
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		<-over
	}
}

// stopGrace is how long all programs together have to end politely.
const stopGrace = 10 * time.Second

// stopAll ends programs at the same time.
func stopAll(all []*process) {
	ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
	defer cancel()
	var ending sync.WaitGroup
	for _, p := range all {
		ending.Go(func() { p.stop(ctx) })
	}
	ending.Wait()
}

// allAlive joins the programs that have ended unasked.
func allAlive(all []*process) error {
	var problems []error
	for _, p := range all {
		problems = append(problems, p.alive())
	}
	return errors.Join(problems...)
}

// tail is the end of a log.
func tail(log string, lines int) string {
	text, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
