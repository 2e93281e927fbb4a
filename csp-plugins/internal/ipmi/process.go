package ipmi

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"syscall"
	"time"
)

// outcome is how one run of ipmitool ended.
type outcome struct {
	stdout, stderr string
	// exit is its status; it matters only if it ended by itself.
	exit int
	// notStarted says why there was no process.
	notStarted error
	// killed: it was killed, at the deadline or by somebody else.
	killed bool
}

const (
	// killGrace is how long the pipes of a killed process are still read.
	killGrace = time.Second
	// maxOutput bounds what is kept of each of its outputs, in bytes.
	maxOutput = 16 << 10
)

// run runs a program without an input and kills it, with all that it has started,
// when the context ends.
func run(ctx context.Context, program string, args []string) outcome {
	if ctx.Err() != nil {
		return outcome{notStarted: ctx.Err()}
	}
	var stdout, stderr bounded
	cmd := exec.CommandContext(ctx, program, args...)
	// Nothing of the plugin's environment, such as IPMI_PASSWORD of somebody.
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "HOME=/"}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = killGrace
	if err := cmd.Start(); err != nil {
		return outcome{notStarted: err}
	}
	err := cmd.Wait()
	o := outcome{stdout: stdout.kept.String(), stderr: stderr.kept.String()}
	exit, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
	case ended && exit.ExitCode() >= 0:
		o.exit = exit.ExitCode()
	default:
		o.killed = true
	}
	return o
}

// bounded keeps the first bytes that are written to it. It is no buffer itself: a
// copy would fill one by its ReadFrom.
type bounded struct{ kept bytes.Buffer }

// Write never fails: what is too much is dropped.
func (b *bounded) Write(p []byte) (int, error) {
	b.kept.Write(p[:min(len(p), maxOutput-b.kept.Len())])
	return len(p), nil
}
