package collector

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/nvidia/nvsentinel/repair-steps/internal/redact"
)

// lead is how many bytes before those that are kept of a file are read, so that what its
// lines announce is known: a private key that began there, a name whose value comes.
const lead = 256 << 10

// errMissing: the node has no such tool or file.
var errMissing = errors.New("not found")

// stream writes what a part has to out.
func (c *Collector) stream(ctx context.Context, p part, out *redact.Writer, e *Entry) error {
	if p.file != "" {
		return c.pourFile(ctx, p.file, out, e)
	}
	t, ok := find(p.tool, c.Path, c.ToolRoots)
	if !ok {
		return fmt.Errorf("finding %s: %w", p.tool, errMissing)
	}
	host, ok := t.pathInTool(c.HostRoot)
	if !ok && strings.Contains(strings.Join(p.args, " "), "{host}") {
		return fmt.Errorf("running %s: the root %s does not contain %s", p.tool, t.root, c.HostRoot)
	}
	args := make([]string, len(p.args))
	if !p.report {
		for i, a := range p.args {
			args[i] = strings.ReplaceAll(a, "{host}", host)
		}
		e.Command = t.command(args)
		var err error
		e.Exit, err = run(ctx, t, args, out, c.Clock)
		return err
	}
	return c.pourReport(ctx, t, p, out, e)
}

// pourReport runs a tool that leaves its report in a file, in a folder where the tool
// can write: ours, or the /tmp of its root.
func (c *Collector) pourReport(ctx context.Context, t tool, p part, out io.Writer, e *Entry) error {
	folder := c.WorkDir
	if t.root != "" {
		folder = filepath.Join(t.root, "tmp")
	}
	dir, err := os.MkdirTemp(folder, "nvsentinel-report-")
	if err != nil {
		return fmt.Errorf("creating a directory for the report: %w", err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, p.name)
	seen, _ := t.pathInTool(file)
	args := make([]string, len(p.args))
	for i, a := range p.args {
		args[i] = strings.ReplaceAll(a, "{out}", seen)
	}
	e.Command = t.command(args)
	e.Exit, err = run(ctx, t, args, io.Discard, c.Clock)
	return errors.Join(err, pourPacked(ctx, file, out))
}

// pourPacked reads a file, or the gzip of it if there is one.
func pourPacked(ctx context.Context, path string, out io.Writer) error {
	f, err := os.OpenFile(path+".gz", os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if f, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0); err != nil {
			return fmt.Errorf("reading the report: %w", err)
		}
		defer f.Close()
		return follow(ctx, f, out)
	}
	if err != nil {
		return fmt.Errorf("reading the report: %w", err)
	}
	defer f.Close()
	unpacked, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("decompressing the report: %w", err)
	}
	return follow(ctx, unpacked, out)
}

// pourFile reads the last bytes of a file of the host. A link out of the host's root is
// not followed, and what is no file is not opened for long.
func (c *Collector) pourFile(ctx context.Context, name string, out *redact.Writer, e *Entry) error {
	f, err := c.host.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("opening the file: %w", errMissing)
	}
	if err != nil {
		return fmt.Errorf("opening the file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("opening the file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("opening the file: not a regular file (%s)", info.Mode().Type())
	}
	size := info.Size() // what is written from now on is not waited for
	begin := max(0, size-c.MaxPart-lead)
	if _, err := f.Seek(begin, io.SeekStart); err != nil {
		return fmt.Errorf("reading the file: %w", err)
	}
	from := bufio.NewReader(io.LimitReader(f, size-begin))
	if begin > 0 {
		e.Truncated = true
		skipped, err := skipLine(from)
		if err == nil {
			err = follow(ctx, io.LimitReader(from, lead-skipped), learner{out})
		}
		if err != nil {
			return fmt.Errorf("reading the file: %w", err)
		}
	}
	return follow(ctx, from, out)
}

// learner is a log that is not kept.
type learner struct{ of *redact.Writer }

// Write has the log read, for what follows it.
func (l learner) Write(p []byte) (int, error) { return len(p), l.of.Learn(p) }

// follow copies until the end or the context's.
func follow(ctx context.Context, from io.Reader, to io.Writer) error {
	_, err := io.Copy(to, untilOver{ctx, from})
	return err
}

// untilOver is a reader that ends with an error when its context does.
type untilOver struct {
	ctx  context.Context
	from io.Reader
}

func (u untilOver) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, fmt.Errorf("reading timed out: %w", err)
	}
	return u.from.Read(p)
}

// tail keeps the last bytes of what is written to it, in two files: the newer one takes
// the older one's place when it is full. On the disk it has twice its limit at most, in
// the memory nothing.
type tail struct {
	dir   string
	limit int64

	older, newer *os.File // nil: none
	size         int64    // of newer
	cut          bool     // something was dropped
}

// Write takes whole lines.
func (t *tail) Write(p []byte) (int, error) {
	if t.newer == nil || t.size > 0 && t.size+int64(len(p)) > t.limit {
		if err := t.turn(); err != nil {
			return 0, err
		}
	}
	n, err := t.newer.Write(p)
	t.size += int64(n)
	return n, err
}

// turn begins a new file.
func (t *tail) turn() error {
	f, err := os.CreateTemp(t.dir, "part-")
	if err != nil {
		return fmt.Errorf("storing a part: %w", err)
	}
	if t.older != nil {
		t.cut = true
		_ = drop(t.older)
	}
	t.older, t.newer, t.size = t.newer, f, 0
	return nil
}

// tailReader is what a tail has kept.
type tailReader struct {
	io.Reader
	size int64
	// cut: the begin of all was dropped.
	cut bool
}

// read gives what is kept, from the begin of a line on.
func (t *tail) read() (tailReader, error) {
	var files []io.Reader
	size := int64(0)
	for _, f := range []*os.File{t.older, t.newer} {
		if f == nil {
			continue
		}
		end, err := f.Seek(0, io.SeekEnd)
		if err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
		if err != nil {
			return tailReader{}, fmt.Errorf("reading a part: %w", err)
		}
		files = append(files, f)
		size += end
	}
	from := bufio.NewReader(io.MultiReader(files...))
	if size <= t.limit {
		return tailReader{from, size, t.cut}, nil
	}
	skipped, err := io.CopyN(io.Discard, from, size-t.limit)
	if err != nil {
		return tailReader{}, fmt.Errorf("reading a part: %w", err)
	}
	rest, err := skipLine(from)
	if err != nil {
		return tailReader{}, fmt.Errorf("reading a part: %w", err)
	}
	return tailReader{from, size - skipped - rest, true}, nil
}

// skipLine drops the rest of a line and reports how many bytes that were.
func skipLine(from *bufio.Reader) (n int64, err error) {
	for {
		piece, err := from.ReadSlice('\n')
		n += int64(len(piece))
		switch {
		case err == nil || errors.Is(err, io.EOF):
			return n, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return n, err
		}
	}
}

// close removes the files.
func (t *tail) close() error {
	return errors.Join(drop(t.older), drop(t.newer))
}

func drop(f *os.File) error {
	if f == nil {
		return nil
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
