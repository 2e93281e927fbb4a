package collector

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"
)

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

// lineBytes is about how long a line of a journal is: as many as fit are asked for, so
// that a tool that is killed has not told the oldest ones alone.
const lineBytes = 256

// plan is what is collected, the most telling first: what does not fit is left out from
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

// files are those of the host that a pattern means, in the order of the patterns; more
// says how many there are beyond the bound.
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
