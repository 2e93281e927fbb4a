// Package footprint gives memory back that only the start of a process needed.
// The larger part of the connector's resident memory is pages of its program:
// most were read once, when the Kubernetes client and the database drivers
// registered their types.
package footprint

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

// Shrinker gives memory back once.
type Shrinker struct {
	// After is when the start is over.
	After time.Duration
	Clock clock.Clock
	Log   *slog.Logger
}

// Run waits until the start is over, returns free memory to the system and
// unmaps the pages of the program. Those that are needed are mapped again when
// they are touched; the kernel keeps them as long as it has room. It fails only
// in the log: a process that stays larger is none the worse.
func (s Shrinker) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.Clock.After(s.After):
	}
	debug.FreeOSMemory()
	if err := unmapProgram(); err != nil {
		s.Log.Warn("the program's pages stay mapped", "error", err)
	}
	return nil
}

// mapping is a range of addresses.
type mapping struct{ start, end uint64 }

// programs lists the mappings of the file exe that are not writable and of which
// no page was changed (a relocated page would be lost), from the text of
// /proc/PID/smaps, see proc_pid_smaps(5).
func programs(smaps io.Reader, exe string) ([]mapping, error) {
	var out []mapping
	var current *mapping
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		if m, ok := header(fields[0]); ok {
			current = nil
			if len(fields) == 6 && fields[5] == exe && (fields[1] == "r-xp" || fields[1] == "r--p") {
				current = &m
			}
		} else if fields[0] == "Anonymous:" && fields[1] == "0" && current != nil {
			out = append(out, *current)
		}
	}
	return out, lines.Err()
}

// header reads the addresses at the beginning of a mapping.
func header(addresses string) (mapping, bool) {
	from, to, ok := strings.Cut(addresses, "-")
	start, errFrom := strconv.ParseUint(from, 16, 64)
	end, errTo := strconv.ParseUint(to, 16, 64)
	return mapping{start, end}, ok && errFrom == nil && errTo == nil
}

func readPrograms() ([]mapping, error) {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, fmt.Errorf("finding the program: %w", err)
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return nil, fmt.Errorf("listing the mappings: %w", err)
	}
	defer f.Close()
	return programs(f, exe)
}
