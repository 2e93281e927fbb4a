package collector

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/repair-steps/internal/redact"
)

// ArchiveName is the archive's, in the work folder.
const ArchiveName = "logs.tar.gz"

// Collector collects from one node.
type Collector struct {
	Config
	// Path is where tools are looked for first, as PATH has it.
	Path    string
	Version string
	Clock   clock.Clock
	Log     *slog.Logger

	host *os.Root
	out  *archive
}

// Collect makes the archive in the work folder and returns its path. A part that fails,
// whatever the reason, is reported in the manifest and does not affect other parts; an
// error means that there is no archive.
func (c *Collector) Collect(ctx context.Context) (string, Manifest, error) {
	m := Manifest{Node: c.Node, Created: c.Clock.Now().UTC(), Version: c.Version}
	host, err := os.OpenRoot(c.HostRoot)
	if err != nil {
		return "", m, fmt.Errorf("opening the root directory of the host (--host-root): %w", err)
	}
	defer host.Close()
	c.host = host
	path := filepath.Join(c.WorkDir, ArchiveName)
	if c.out, err = newArchive(path, m.Created); err != nil {
		return "", m, err
	}
	found, more := files(host.FS(), c.Files)
	m.FilesLeftOut = more
	limited, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	for _, p := range plan(c.Config, found) {
		e, err := c.collect(limited, p, c.MaxTotal-m.Bytes)
		if err != nil {
			return "", m, errors.Join(err, c.out.file.Close())
		}
		c.Log.Info("part collected", "part", e.Name, "state", e.State, "bytes", e.Bytes, "error", e.Error)
		m.Bytes += e.Bytes
		m.Parts = append(m.Parts, e)
	}
	if ctx.Err() != nil {
		return "", m, errors.Join(fmt.Errorf("collecting: %w", ctx.Err()), c.out.file.Close())
	}
	return path, m, c.out.finish(m)
}

// collect makes one part, of at most room bytes. An error is one of the archive.
func (c *Collector) collect(ctx context.Context, p part, capacity int64) (e Entry, err error) {
	e = Entry{Name: p.name, File: p.file, State: LeftOut}
	switch {
	case capacity <= 0:
		e.Error = fmt.Sprintf("the archive has reached its limit of %d bytes (--max-total-bytes)", c.MaxTotal)
		return e, nil
	case ctx.Err() != nil:
		e.Error = fmt.Sprintf("the time limit of %s for all parts was reached (--timeout)", c.Timeout)
		return e, nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	end := &tail{dir: c.WorkDir, limit: min(c.MaxPart, capacity)}
	defer func() { err = errors.Join(err, end.close()) }()
	clean := redact.NewWriter(end)
	what := c.stream(ctx, p, clean, &e)
	if ctx.Err() == nil {
		what = errors.Join(what, clean.Flush())
	}
	e.Redactions, e.LongLines = clean.Redactions, clean.LongLines
	text, reading := end.read()
	e.setOutcome(errors.Join(what, reading))
	e.Bytes, e.Truncated = text.size, e.Truncated || text.cut
	if text.size == 0 {
		return e, nil
	}
	return e, c.out.add(p.name, text.size, text)
}

// setOutcome records the outcome of a part.
func (e *Entry) setOutcome(err error) {
	switch {
	case err == nil:
		e.State = Collected
		return
	case errors.Is(err, errMissing):
		e.State = Missing
	default:
		e.State = Failed
	}
	e.Error = redact.Text(err.Error())
}

// part is one file of the archive: what a tool writes to its output, what it writes
// into a file, or a file of the host.
type part struct {
	// name in the archive.
	name string
	// limit is how long it may take.
	limit time.Duration
	// tool and args: {host} is the host's root and {out} a file, as the tool sees them.
	tool string
	args []string
	// report: the part is what the tool leaves in {out} or {out}.gz.
	report bool
	// file of the host, below its root.
	file string
}

// lineBytes is about how long a line of a journal is: as many lines as fit are requested,
// so that a tool that is killed has not printed only the oldest ones.
const lineBytes = 256

// plan is what is collected, the most informative first: what does not fit is left out from
// the end.
func plan(c Config, files []string) []part {
	lines := fmt.Sprintf("--lines=%d", c.MaxPart/lineBytes) // its newest
	journal := []string{"--root={host}", "--no-pager", "--quiet", "--output=short-precise", "--utc", lines}
	parts := []part{{name: "journal/kernel.log", limit: c.PartTimeout, tool: "journalctl", args: slices.Concat(journal, []string{"--dmesg"})}}
	if c.SMI {
		parts = append(parts, part{name: "nvidia-smi.txt", limit: c.PartTimeout, tool: "nvidia-smi", args: []string{"-q"}})
	}
	for _, unit := range c.Units {
		parts = append(parts, part{
			name: "journal/" + strings.NewReplacer("*", "_", "?", "_", "[", "_", "]", "_").Replace(unit) + ".log", limit: c.PartTimeout, tool: "journalctl",
			args: slices.Concat(journal, []string{fmt.Sprintf("--since=-%ds", int64(c.Since.Seconds())), "--unit=" + unit}),
		})
	}
	for _, file := range files {
		parts = append(parts, part{name: "files/" + file, limit: c.PartTimeout, file: file})
	}
	if c.BugReport {
		parts = append(parts, part{
			name: "nvidia-bug-report.log", limit: c.BugReportTimeout, tool: "nvidia-bug-report.sh", args: []string{"--output-file", "{out}"}, report: true,
		})
	}
	return parts
}

// files are those of the host that a pattern means, in the order of the patterns; more is
// how many there are beyond the bound.
func files(host fs.FS, patterns []string) (found []string, more int) {
	for _, pattern := range patterns {
		matches, _ := fs.Glob(host, pattern) // patterns are validated
		for _, m := range matches {
			if slices.Contains(found, m) {
				continue
			}
			if len(found) == maxFiles {
				more++
				continue
			}
			found = append(found, m)
		}
	}
	return found, more
}
