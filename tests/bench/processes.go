package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// tick is the step of processor times in /proc: 1/100 s on every Linux platform of Go.
const tick = 10 * time.Millisecond

// process is the content of /proc/<pid>/stat of one process.
type process struct {
	parent int
	// name is that of the program, 15 bytes at most.
	name string
	// used is its own processor time, ended that of the children which ended.
	used, ended time.Duration
}

// lookUp reads a process.
func lookUp(pid int) (process, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, fmt.Errorf("reading a process's time: %w", err)
	}
	// The name in parentheses may hold spaces and parentheses.
	from, to := strings.Index(string(text), "("), strings.LastIndex(string(text), ")")
	if from < 0 || to < from {
		return process{}, errors.New("reading a process's time: no name")
	}
	fields := strings.Fields(string(text[to+1:]))
	if len(fields) < 15 {
		return process{}, errors.New("reading a process's time: the line is too short")
	}
	// Behind the state the parent, and utime, stime, cutime and cstime in ticks.
	var n [5]int64
	for i, at := range []int{1, 11, 12, 13, 14} {
		if n[i], err = strconv.ParseInt(fields[at], 10, 64); err != nil {
			return process{}, fmt.Errorf("reading a process's time: %w", err)
		}
	}
	return process{
		parent: int(n[0]), name: string(text[from+1 : to]),
		used: time.Duration(n[1]+n[2]) * tick, ended: time.Duration(n[3]+n[4]) * tick,
	}, nil
}

// cpu is the processor time a process has used, in steps of 10 ms.
func cpu(pid int) (time.Duration, error) {
	p, err := lookUp(pid)
	return p.used, err
}

// processes are all of the machine by their ids.
func processes() (map[int]process, error) {
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	all := map[int]process{}
	for _, f := range folders {
		pid, err := strconv.Atoi(filepath.Base(f))
		if err != nil {
			continue
		}
		if p, err := lookUp(pid); err == nil { // else it has ended
			all[pid] = p
		}
	}
	return all, nil
}

// tree is the processor time of a process and of everything that it started.
func tree(all map[int]process, pid int) time.Duration {
	sum := all[pid].used + all[pid].ended
	for child, p := range all {
		if p.parent == pid {
			sum += tree(all, child)
		}
	}
	return sum
}

// machine is the processor time that all of the machine have used or were denied.
func machine() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("reading the machine's time: %w", err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(first)
	if len(fields) < 9 {
		return 0, errors.New("reading the machine's time: the line is too short")
	}
	var sum int64
	for i, f := range fields[1:9] { // user nice system idle iowait irq softirq steal
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the machine's time: %w", err)
		}
		if i != 3 && i != 4 {
			sum += n
		}
	}
	return time.Duration(sum) * tick, nil
}

// load is the machine's load of the last minute.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// usage is processor time by part of the run.
type usage map[string]time.Duration

// The parts that are no service, by the names of their processes.
var parts = map[string]string{
	"kube-apiserver": "API server", "etcd": "etcd", "kube-controller": "controller-manager", "kube-scheduler": "scheduler",
	"kwok": "node simulator", "postgres": "PostgreSQL",
}

const (
	// benchPart is the benchmark itself, otherPart whatever else the machine did.
	benchPart, otherPart = "the benchmark", "others on the machine"
)

// used is what every part has used so far.
func (s *stage) used() (usage, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	services := map[int]string{}
	for _, service := range s.fleet.Services() {
		name, _, _ := strings.Cut(service.Name, "@")
		services[service.PID()] = name
	}
	out, self := usage{}, os.Getpid()
	for pid, p := range all {
		if p.parent != self {
			continue
		}
		name := services[pid]
		if name == "" {
			name = parts[p.name]
		}
		if name == "" {
			name = benchPart
		}
		out[name] += tree(all, pid)
	}
	out[benchPart] += all[self].used
	whole, err := machine()
	out[otherPart] = whole - out.sum()
	return out, err
}

// sum is all but what others did.
func (u usage) sum() (sum time.Duration) {
	for name, d := range u {
		if name != otherPart {
			sum += d
		}
	}
	return sum
}

// since is what was used after before.
func (u usage) since(before usage) usage {
	out := usage{}
	for name, d := range u {
		out[name] = d - before[name]
	}
	return out
}

// order is the parts in the order of an event's walk, then the rest by name.
func (u usage) order() []string {
	walk := []string{
		connectorsService, gatewayService, "fault-quarantine", "node-drainer", "fault-remediation", "janitor", "csp-plugin-kwok",
		"API server", "etcd", "controller-manager", "scheduler", "node simulator", "PostgreSQL", benchPart,
	}
	var out, rest []string
	for _, name := range walk {
		if _, ok := u[name]; ok {
			out = append(out, name)
		}
	}
	for name := range u {
		if name != otherPart && !slices.Contains(walk, name) {
			rest = append(rest, name)
		}
	}
	slices.Sort(rest)
	return append(out, rest...)
}
