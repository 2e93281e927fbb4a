package gobuild

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

const (
	// every is how often a build that takes long reports how far it is.
	every = 10 * time.Second
	// lockEvery is how often a build looks whether another one has ended.
	lockEvery = 200 * time.Millisecond
)

// count knows how far a build is.
type count struct {
	clock clock.WithTicker
	began time.Time

	mu       sync.Mutex // of out as well
	out      io.Writer
	modules  int
	packages map[string]bool // and whether it was compiled
	compiled int
}

func newCount(out io.Writer, clock clock.WithTicker) *count {
	if out == nil {
		out = io.Discard
	}
	return &count{clock: clock, began: clock.Now(), out: out, packages: map[string]bool{}}
}

// log writes a line that begins with the time since the build began.
func (c *count) log(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.write(fmt.Sprintf(format, args...))
}

func (c *count) write(text string) {
	fmt.Fprintf(c.out, "  %6s  %s\n", c.clock.Since(c.began).Round(time.Second), text)
}

// logPeriodically reports every ten seconds how far it is, until it is stopped.
func (c *count) logPeriodically(what string) (stop func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	ticker := c.clock.NewTicker(every)
	go func() {
		defer close(done)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C():
				c.logProgress(what)
			}
		}
	}()
	return func() { close(ended); <-done }
}

func (c *count) logProgress(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.compiled > 0:
		c.write(fmt.Sprintf("%s: compiled %d of %d packages", what, c.compiled, len(c.packages)))
	case c.modules > 0:
		c.write(fmt.Sprintf("%s: %d modules", what, c.modules))
	default:
		c.write(what)
	}
}

// fetched counts a module whose sources were downloaded.
func (c *count) fetched() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.modules++
}

// found adds packages to those that the build needs.
func (c *count) found(names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		if _, known := c.packages[name]; !known {
			c.packages[name] = false
		}
	}
}

// compiling receives what go build -v prints: a package when it is compiled, and
// comments. What the build cache holds is not reported.
func (c *count) compiling(line string) {
	if strings.ContainsAny(line, " :") {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.packages[line] {
		c.packages[line] = true
		c.compiled++
	}
}

// total is the number of packages found.
func (c *count) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.packages)
}

// done is the number of packages compiled.
func (c *count) done() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.compiled
}

// lock takes the exclusive lock of path, waiting for another process that builds.
func (c *count) lock(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the build lock: %w", err)
	}
	try := func() error { return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
	if try() == nil {
		return func() { file.Close() }, nil
	}
	defer c.logPeriodically("waiting for another process that builds the same")()
	ticker := c.clock.NewTicker(lockEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("waiting for the build lock: %w", context.Cause(ctx))
		case <-ticker.C():
			if try() == nil {
				return func() { file.Close() }, nil
			}
		}
	}
}
