package source

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"
)

// Bounds of what is read from one journalctl.
const (
	entryBytes    = 1 << 20 // of one printed entry; a longer one is malformed
	entriesAhead  = 1024    // decoded and not yet asked for
	complaintSize = 512     // of its standard error
)

// follower is one running journalctl. Its entries come through a bounded channel:
// when nobody takes them, the pipe fills and journalctl waits.
type follower struct {
	entries chan kernellog.Entry // closed when there will be no more
	wake    chan<- struct{}      // signalled when half of entries is taken up
	follow  bool
	stop    context.CancelFunc

	// err, valid after entries is closed, is nil after a proper end.
	err error

	mu        sync.Mutex
	malformed int64
	complaint string // not reported yet
	last      string // the beginning of the last one
}

// run starts journalctl.
func run(path string, args []string, follow bool, wake chan<- struct{}) (*follower, error) {
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(cmd.Environ(), "LC_ALL=C", "SYSTEMD_COLORS=0", "SYSTEMD_PAGER=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // our signals are not meant for it
	r := &follower{entries: make(chan kernellog.Entry, entriesAhead), wake: wake, follow: follow, stop: stop}
	out, err := cmd.StdoutPipe()
	if err != nil {
		stop()
		return nil, fmt.Errorf("creating the pipe of journalctl: %w", err)
	}
	cmd.Stderr = r
	if err := cmd.Start(); err != nil {
		stop()
		return nil, fmt.Errorf("starting journalctl: %w", err)
	}
	go func() {
		defer close(r.entries)
		defer stop()
		readErr := r.pump(ctx, out)
		_, _ = io.Copy(io.Discard, out) // after a stop: let it come to its end
		if err := errors.Join(readErr, cmd.Wait()); err != nil {
			r.err = fmt.Errorf("running journalctl: %w%s", err, r.stderrTail())
		}
	}()
	return r, nil
}

// pump decodes what journalctl prints until its end. What cannot be decoded is
// counted and passed: the entry behind it carries its own place.
func (r *follower) pump(ctx context.Context, out io.Reader) error {
	lines := bufio.NewReaderSize(out, 64<<10)
	var line []byte
	for {
		part, err := lines.ReadSlice('\n')
		if len(line) <= entryBytes {
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil { // an entry without its newline was not printed to its end
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("reading the output: %w", err)
		}
		entry, err := kernellog.ParseEntry(line)
		if err != nil || len(line) > entryBytes {
			r.mu.Lock()
			r.malformed++
			r.mu.Unlock()
		} else {
			if !r.forward(ctx, entry) {
				return nil
			}
		}
		if line = line[:0]; cap(line) > 128<<10 {
			line = nil
		}
	}
}

// forward passes an entry on; false means that the reader was stopped.
func (r *follower) forward(ctx context.Context, entry kernellog.Entry) bool {
	if len(r.entries) >= cap(r.entries)/2 {
		select {
		case r.wake <- struct{}{}:
		default: // signalled already
		}
	}
	select {
	case r.entries <- entry:
		return true
	case <-ctx.Done():
		return false
	}
}

// Write takes what journalctl writes to its standard error.
func (r *follower) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = kernellog.Clean(p[:min(complaintSize, len(p))])
	if capacity := complaintSize - len(r.complaint); capacity > 0 {
		r.complaint += kernellog.Cut(r.last, capacity)
	}
	return len(p), nil
}

// observed takes the number of malformed entries and the complaint so far.
func (r *follower) observed() (malformed int64, complaint string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	malformed, complaint = r.malformed, strings.TrimSpace(r.complaint)
	r.malformed, r.complaint = 0, ""
	return malformed, complaint
}

func (r *follower) stderrTail() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if text := strings.TrimSpace(r.last); text != "" {
		return ": " + text
	}
	return ""
}

// close ends journalctl and waits until it is gone.
func (r *follower) close() {
	r.stop()
	for range r.entries { // until it is closed
		continue
	}
}
