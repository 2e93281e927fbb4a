// Package gputool resets GPUs of the machine it runs on, with the driver's own
// program, and reports in the kernel log what became of each: the syslog monitor reads
// it there, and clears the faults that a reset cures.
package gputool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// Limits of one call of the driver's program: a driver that hangs must not keep the
// other GPUs from theirs.
const (
	queryTimeout = 30 * time.Second
	resetLimit   = 2 * time.Minute
)

// Tool resets GPUs.
type Tool struct {
	// SMI runs nvidia-smi and returns what it prints.
	SMI func(ctx context.Context, args ...string) (string, error)
	// Kernel is the kernel log; each Write is one record.
	Kernel io.Writer
	// Log shows a person what is done.
	Log func(format string, args ...any)
}

// ID is the form of a GPU's name in a reset: its UUID, or its address on the bus.
var ID = regexp.MustCompile(`^(GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])$`)

// Names reads a list with commas; empty is none, which means all GPUs.
func Names(list string) ([]string, error) {
	var out []string
	for name := range strings.SplitSeq(list, ",") {
		switch name = strings.TrimSpace(name); {
		case name == "":
		case !ID.MatchString(name):
			return nil, fmt.Errorf("%q is neither the UUID of a GPU (GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx) nor its bus id (0000:18:00.0)", name)
		default:
			out = append(out, name)
		}
	}
	return out, nil
}

// Reset resets the named GPUs, one after the other, or all of the machine. It goes on
// after a failure and joins them all.
func (t Tool) Reset(ctx context.Context, names []string) error {
	if len(names) == 0 {
		all, err := t.query(ctx, "--query-gpu=uuid", "--format=csv,noheader")
		if err != nil {
			return fmt.Errorf("listing the GPUs: %w", err)
		}
		if names = strings.Fields(all); len(names) == 0 {
			return errors.New("listing the GPUs: the driver reports none")
		}
	}
	var problems []error
	for _, name := range names {
		if err := t.one(ctx, name); err != nil {
			t.Log("%s: %v", name, err)
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(problems...)
}

// one resets a GPU and logs what became of it, under the UUID that it has.
func (t Tool) one(ctx context.Context, name string) error {
	uuid := name
	if !strings.HasPrefix(name, "GPU-") {
		answer, err := t.query(ctx, "--query-gpu=uuid", "--format=csv,noheader", "-i", name)
		if err != nil {
			return fmt.Errorf("querying its UUID: %w", err)
		}
		if uuid = strings.TrimSpace(answer); !ID.MatchString(uuid) {
			return fmt.Errorf("querying its UUID: the driver returned %.100q", answer)
		}
	}
	failure := t.reset(ctx, name)
	_, err := io.WriteString(t.Kernel, Line(uuid, failure == nil))
	if err != nil {
		err = fmt.Errorf("writing the outcome to the kernel log: %w", err)
	}
	t.Log("%s: reset executed, success: %t", uuid, failure == nil)
	return errors.Join(failure, err)
}

// reset resets a GPU and sees whether it answers afterwards.
func (t Tool) reset(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, resetLimit)
	defer cancel()
	if _, err := t.SMI(ctx, "--gpu-reset", "-i", name); err != nil {
		return fmt.Errorf("resetting it: %w", err)
	}
	if _, err := t.query(ctx, "-q", "-i", name); err != nil {
		return fmt.Errorf("querying its state after the reset: %w", err)
	}
	return nil
}

func (t Tool) query(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return t.SMI(ctx, args...)
}

// Tag is the program's name in the kernel log, which the syslog monitor looks for.
const Tag = "nvsentinel-gpu-reset"

// priority is that of the records: a program's, for information. The kernel does not
// let programs write under its own facility.
const priority = 1<<3 | 6

// Line is the record of an outcome, as it is written to /dev/kmsg.
func Line(uuid string, success bool) string {
	return fmt.Sprintf("<%d>%s: GPU reset executed: %s, success: %t\n", priority, Tag, uuid, success)
}
