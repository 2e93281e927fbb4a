// Package gobuild compiles Go programs and shows people who wait how far it is.
package gobuild

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// tailBytes is how much of the compiler's output an error shows.
const tailBytes = 4 << 10

// Program is a main package and the name of its binary, which may be in a folder below
// the batch's. Packages whose last elements are the same need folders of their own.
type Program struct {
	Name    string
	Package string
	// Links are further names of the binary, beside it.
	Links []string
}

// Batch is what one go build makes: main packages of one module or workspace.
// Batches that agree in versions and flags share what they compile.
type Batch struct {
	// Title names the batch to people.
	Title string
	// Dir is the folder in which go build runs.
	Dir string
	// Env is added to the environment of this process.
	Env []string
	// Flags are go build's.
	Flags []string
	// Programs are what is made.
	Programs []Program
	// Only are packages that are compiled with their tests, and not linked; a batch
	// has either these or programs.
	Only []string
	// Out is the folder of the binaries.
	Out string
	// Once is for a folder that several processes use: programs that it holds are
	// not built again, a binary appears there when it is whole, and a process waits
	// for another one that builds.
	Once bool
}

// Lacking returns the programs that Build would build.
func (b Batch) Lacking() []Program {
	if !b.Once {
		return b.Programs
	}
	return slices.DeleteFunc(slices.Clone(b.Programs), func(p Program) bool {
		_, err := os.Stat(filepath.Join(b.Out, p.Name))
		return err == nil
	})
}

// Builder builds batches one after the other.
type Builder struct {
	// Progress receives what is going on, a line each ten seconds; nil discards it.
	Progress io.Writer
}

// Build builds every batch in the order given; it is instant and silent when
// nothing is lacking. The number of packages it reports is that of all batches
// together: a package that two of them need is counted once.
func (b Builder) Build(ctx context.Context, batches ...Batch) error {
	batches = slices.DeleteFunc(slices.Clone(batches), func(b Batch) bool { return len(b.Lacking()) == 0 && len(b.Only) == 0 })
	if len(batches) == 0 {
		return nil
	}
	c := newCount(b.Progress, clock.RealClock{})
	if err := c.list(ctx, batches); err != nil {
		return err
	}
	c.log("%d packages are needed; what was compiled before is not compiled again", c.total())
	for _, batch := range batches {
		if err := c.buildBatch(ctx, batch); err != nil {
			return fmt.Errorf("building %s: %w", batch.Title, err)
		}
	}
	return nil
}

// list finds out which packages there are, which downloads the modules they are in.
// The standard library, which every program needs, is compiled meanwhile.
func (c *count) list(ctx context.Context, batches []Batch) error {
	defer c.logPeriodically("fetching sources")()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var standard sync.WaitGroup
	defer standard.Wait()
	standard.Go(func() {
		// What this leaves undone, and an error of it, is the build's own.
		_, _ = batches[0].run(ctx, append(append([]string{"build", "-v"}, batches[0].Flags...), "std"), c.compiling)
	})
	err := c.listAll(ctx, batches)
	if err != nil {
		cancel()
	}
	return err
}

func (c *count) listAll(ctx context.Context, batches []Batch) error {
	for _, b := range batches {
		args := append([]string{"list", "-deps"}, b.Flags...)
		out, err := b.run(ctx, append(args, b.packages(b.Lacking())...), func(line string) {
			if strings.HasPrefix(line, "go: downloading ") {
				c.fetched()
			}
		})
		if err != nil {
			return fmt.Errorf("finding the packages of %s: %w", b.Title, err)
		}
		c.found(strings.Fields(out))
	}
	return nil
}

// buildBatch builds what is lacking when no other process does.
func (c *count) buildBatch(ctx context.Context, b Batch) error {
	if len(b.Only) > 0 {
		return c.build(ctx, b)
	}
	if err := os.MkdirAll(b.Out, 0o755); err != nil {
		return fmt.Errorf("making the folder of the binaries: %w", err)
	}
	if b.Once {
		unlock, err := c.lock(ctx, filepath.Join(b.Out, ".lock"))
		if err != nil {
			return err
		}
		defer unlock()
		if b.Programs = b.Lacking(); len(b.Programs) == 0 {
			return nil
		}
	}
	return c.build(ctx, b)
}

// build compiles and links one batch. Into a folder that others use it moves a
// binary when it is whole; elsewhere it leaves the one that is up to date alone.
func (c *count) build(ctx context.Context, b Batch) error {
	began, before, into := c.clock.Now(), c.done(), b.Out
	if b.Once {
		temp, err := os.MkdirTemp(b.Out, ".building-")
		if err != nil {
			return fmt.Errorf("making a folder for the build: %w", err)
		}
		defer os.RemoveAll(temp)
		into = temp
	}
	stop := c.logPeriodically(b.Title)
	defer stop()
	if len(b.Only) > 0 {
		// go build would link programs among them.
		if _, err := b.run(ctx, slices.Concat([]string{"list", "-export", "-test", "-f", "", "-v"}, b.Flags, b.Only), c.compiling); err != nil {
			return err
		}
	}
	folders := map[string][]Program{}
	for _, p := range b.Programs {
		folders[filepath.Dir(p.Name)] = append(folders[filepath.Dir(p.Name)], p)
	}
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		if err := c.buildInto(ctx, b, filepath.Join(into, folder), folders[folder]); err != nil {
			return err
		}
	}
	c.log("%s: built in %s; packages compiled: %d, programs: %d", b.Title, c.clock.Since(began).Round(time.Second), c.done()-before, len(b.Programs))
	return nil
}

// buildInto compiles and links the programs of one folder.
func (c *count) buildInto(ctx context.Context, b Batch, into string, programs []Program) error {
	args := slices.Concat([]string{"build", "-o", into + string(filepath.Separator), "-v"}, b.Flags)
	for _, p := range programs {
		args = append(args, p.Package)
		binary := filepath.Join(b.Out, p.Name)
		if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
			return fmt.Errorf("making the folder of %s: %w", p.Name, err)
		}
		// Under the name that go build gives, it does not link again what is up to date.
		if err := os.Rename(binary, filepath.Join(into, binaryOf(p.Package))); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("finding the last build of %s: %w", p.Name, err)
		}
	}
	if _, err := b.run(ctx, args, c.compiling); err != nil {
		return err
	}
	for _, p := range programs {
		if err := os.Rename(filepath.Join(into, binaryOf(p.Package)), filepath.Join(b.Out, p.Name)); err != nil {
			return fmt.Errorf("keeping %s: %w", p.Name, err)
		}
		if err := p.link(b.Out); err != nil {
			return err
		}
	}
	return nil
}

// link gives a binary its further names.
func (p Program) link(out string) error {
	folder := filepath.Dir(filepath.Join(out, p.Name))
	for _, name := range p.Links {
		link := filepath.Join(folder, name)
		if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("replacing %s: %w", name, err)
		}
		if err := os.Symlink(filepath.Base(p.Name), link); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("naming %s: %w", name, err)
		}
	}
	return nil
}

// packages are those of the programs, with those that are only compiled.
func (b Batch) packages(programs []Program) []string {
	out := slices.Clone(b.Only)
	for _, p := range programs {
		out = append(out, p.Package)
	}
	return out
}

// binaryOf is the name go build gives to the binary of a main package: the last
// element of its path that is no major version.
func binaryOf(pkg string) string {
	name := path.Base(pkg)
	if len(name) > 1 && name[0] == 'v' && strings.Trim(name[1:], "0123456789") == "" {
		name = path.Base(path.Dir(pkg))
	}
	return name
}

// run runs the go command in the batch's folder, hands each line of its stderr to
// hear, and returns its stdout.
func (b Batch) run(ctx context.Context, args []string, hear func(line string)) (string, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.Dir
	cmd.Env = slices.Concat(os.Environ(), spareCollector(), b.Env)
	cmd.Stdout = &out
	// A group of its own, so that a cancelled build takes its compilers along.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", errors.Join(context.Cause(ctx), err)
	}
	output := hearLines(stderr, hear)
	err = cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return "", fmt.Errorf("%w\n%s", err, output)
	}
	return out.String(), nil
}

// hearLines hands each line to hear and returns the last ones.
func hearLines(from io.Reader, hear func(line string)) []byte {
	var output []byte
	for r := bufio.NewReader(from); ; {
		line, err := r.ReadString('\n')
		if line != "" {
			hear(strings.TrimSuffix(line, "\n"))
			output = append(output, line...)
			output = output[max(0, len(output)-tailBytes):]
		}
		if err != nil {
			return bytes.TrimSpace(output)
		}
	}
}
