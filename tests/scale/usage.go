package scale

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

// usage is what a process takes.
type usage struct {
	// Resident memory in bytes, of which own is heap and stacks and the rest pages of
	// files, mostly the program's own; most is the peak since the start.
	resident, own, most int64
	// processor time since the start.
	processor time.Duration
}

// usageOf reads /proc.
func usageOf(pid int) (usage, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return usage{}, fmt.Errorf("reading what process %d takes: %w", pid, err)
	}
	status, err := p.NewStatus()
	if err != nil {
		return usage{}, fmt.Errorf("reading what process %d takes: %w", pid, err)
	}
	stat, err := p.Stat()
	if err != nil {
		return usage{}, fmt.Errorf("reading what process %d takes: %w", pid, err)
	}
	return usage{
		resident: int64(status.VmRSS), own: int64(status.RssAnon), most: int64(status.VmHWM),
		processor: time.Duration(stat.CPUTime() * float64(time.Second)),
	}, nil
}

// family is what a process and its children take together, as PostgreSQL and its
// backends: pages that several share count once.
type family struct {
	processes int
	bytes     int64
	processor time.Duration
}

func familyOf(pid int) (family, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return family{}, fmt.Errorf("listing processes: %w", err)
	}
	var out family
	for _, p := range all {
		stat, err := p.Stat()
		if err != nil || p.PID != pid && stat.PPID != pid {
			continue // it has ended meanwhile, or is another's
		}
		memory, err := p.ProcSMapsRollup()
		if err != nil {
			continue
		}
		out.processes++
		out.bytes += int64(memory.Pss)
		out.processor += time.Duration(stat.CPUTime() * float64(time.Second))
	}
	if out.processes == 0 {
		return out, fmt.Errorf("no process %d", pid)
	}
	return out, nil
}
