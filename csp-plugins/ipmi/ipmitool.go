package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/api/csp/plugin"
	"github.com/nvidia/nvsentinel/csp-plugins/internal/bmc"
)

// outcome is how one run of ipmitool ended.
type outcome struct {
	stdout, stderr string
	// exit is its status; it matters only if it ended by itself.
	exit int
	// notStarted is why there was no process.
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
	o := outcome{stdout: stdout.buffer.String(), stderr: stderr.buffer.String()}
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
type bounded struct{ buffer bytes.Buffer }

// Write never fails: what is too much is dropped.
func (b *bounded) Write(p []byte) (int, error) {
	b.buffer.Write(p[:min(len(p), maxOutput-b.buffer.Len())])
	return len(p), nil
}

// retryAfter is how long a BMC is left alone that has too much to do.
const retryAfter = 15 * time.Second

// completions are the meanings of completion codes (source: IPMI 2.0, table 5-2).
// What is not here leaves open what was done.
var completions = map[byte]codes.Code{
	0xc0: codes.ResourceExhausted,                                  // node busy
	0xc1: codes.FailedPrecondition, 0xc2: codes.FailedPrecondition, // invalid command
	0xc3: codes.Unavailable,                                                                        // timeout while processing
	0xc4: codes.Aborted,                                                                            // out of space
	0xc7: codes.FailedPrecondition, 0xc8: codes.FailedPrecondition, 0xc9: codes.FailedPrecondition, // length, parameter
	0xcc: codes.FailedPrecondition,                                // invalid data field
	0xce: codes.Unavailable,                                       // no response could be provided
	0xcf: codes.Unavailable,                                       // a duplicated request
	0xd0: codes.Aborted, 0xd1: codes.Aborted, 0xd2: codes.Aborted, // being updated or initialized
	0xd3: codes.Aborted,            // destination unavailable
	0xd4: codes.PermissionDenied,   // insufficient privilege level
	0xd5: codes.Aborted,            // not in the present state
	0xd6: codes.FailedPrecondition, // disabled
}

// refusal is what ipmitool prints about a request that the BMC answered with a
// completion code, or that it did not answer.
var refusal = regexp.MustCompile(`Unable to send RAW command \([^()]*?(?: rsp=0x([0-9a-fA-F]{1,2}))?\)`)

// before are texts of ipmitool (1.8.18 and 1.8.19) which mean that it ended before the
// request was sent.
var before = []string{
	"Unable to establish IPMI v2 / RMCP+ session",
	"Could not open socket",
	"Address lookup for",
	"Unable to read password from file",
}

// answered translates how ipmitool ended into the BMC's answer, or into one to
// the janitor. Only what was certainly not done is reported as not done.
func answered(c command, o outcome) ([]byte, error) {
	output := c.name + ": " + bmc.Shorten(o.stderr)
	switch {
	case o.notStarted != nil:
		return nil, status.Error(codes.Aborted, c.name+": starting ipmitool: "+o.notStarted.Error())
	case o.killed:
		return nil, status.Error(codes.DeadlineExceeded, c.name+": ipmitool timed out and was killed: "+bmc.Shorten(o.stderr))
	case o.exit == 0:
		answer, ok := parse(o.stdout)
		if !ok {
			return nil, status.Error(codes.Unavailable, c.name+": ipmitool returned no bytes: "+bmc.Shorten(o.stdout))
		}
		return answer, nil
	}
	if match := refusal.FindStringSubmatch(o.stderr); match != nil {
		return nil, completed(match[1], output)
	}
	for _, text := range before {
		if strings.Contains(o.stderr, text) {
			return nil, status.Error(codes.Aborted, output+" (no BMC at this address, invalid user name or password, or another cipherSuite)")
		}
	}
	return nil, status.Error(codes.Unavailable, output)
}

// completed is the answer to a completion code; empty is none at all.
func completed(code, output string) error {
	number, err := strconv.ParseUint(code, 16, 8)
	meaning, known := completions[byte(number)]
	switch {
	case err != nil || !known:
		return status.Error(codes.Unavailable, output)
	case meaning == codes.ResourceExhausted:
		return plugin.RetryLater(retryAfter, output)
	}
	return status.Error(meaning, output)
}

// nothingSent turns a doubtful answer to a question before the signal into Aborted:
// nothing was sent.
func nothingSent(err error) error {
	switch status.Code(err) { //nolint:exhaustive // the others say it themselves
	case codes.Unavailable, codes.DeadlineExceeded, codes.Unknown, codes.Internal:
		return status.Error(codes.Aborted, "verifying before the request: "+status.Convert(err).Message())
	}
	return err
}

// parse reads the bytes that ipmitool raw writes: pairs of hexadecimal digits.
func parse(text string) ([]byte, bool) {
	answer := []byte{}
	for field := range strings.FieldsSeq(text) {
		one, err := hex.DecodeString(field)
		if err != nil || len(one) != 1 {
			return nil, false
		}
		answer = append(answer, one[0])
	}
	return answer, true
}
