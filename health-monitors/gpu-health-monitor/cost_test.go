package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// TestResourceUsage measures the monitor and the process of its that talks to DCGM,
// with eight GPUs: processor time for each look, memory, and how long a fault takes
// until it is acknowledged. The bounds are wide: a busy machine is no failure.
func TestResourceUsage(t *testing.T) {
	testkit.Long(t, "it measures; what it runs, the other tests do")
	program := filepath.Join(t.TempDir(), "gpu-health-monitor")
	build := exec.Command("go", "build", "-ldflags=-s -w -extldflags=-Wl,-z,lazy", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	n := newNode(t, 8, "--poll-interval=1s", "--settle-time=1s", "--reconnect-backoff=1s")
	n.program = program
	n.start()
	n.expectIdle(3)
	pids := []int{n.cmd.Process.Pid, child(t, n.cmd.Process.Pid)}

	const looks = 30
	before := spent(t, pids)
	n.expectIdle(looks)
	each := (spent(t, pids) - before) / looks
	t.Logf("a look: %s of processor time, %.1f millicores at 15s, %.1f at 1s", each, each.Seconds()/15*1000, each.Seconds()*1000)
	for i, name := range []string{"monitor", "process that talks to DCGM"} {
		t.Logf("%s: %d KiB of its own, %d KiB resident", name, memory(t, pids[i], "Private_Clean:", "Private_Dirty:"), memory(t, pids[i], "Rss:"))
	}
	if each > 200*time.Millisecond {
		t.Errorf("a look costs %s", each)
	}
	reported := latencies(n, 20)
	t.Logf("from fault to acknowledgement at 1s: p50 %s, p99 %s; half of the interval is 500ms", reported[len(reported)/2], reported[len(reported)-1])
}

// latencies lets a fault come and go at any moment of a look's interval.
func latencies(n *node, times int) (out []time.Duration) {
	for range times {
		time.Sleep(rand.N(time.Second)) // so that faults do not come in step with the looks
		began := time.Now()
		n.engine.Incident(reading.Incident{System: 0x10, Health: reading.Fail, Code: 4, Entity: gpu(1)})
		n.next("the fault")
		out = append(out, time.Since(began).Round(time.Millisecond))
		n.engine.Clear(0)
		n.next("its end")
	}
	slices.Sort(out)
	return out
}

// child is the one process that a process started.
func child(t *testing.T, pid int) int {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range tasks {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if id, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil {
			return id
		}
	}
	t.Fatal("the monitor has no child")
	return 0
}

// spent is the processor time of processes; the kernel counts in hundredths of a
// second.
func spent(t *testing.T, pids []int) (sum time.Duration) {
	t.Helper()
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(data), ") ")
		for _, field := range strings.Fields(rest)[11:13] {
			ticks, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			sum += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return sum
}

// memory sums lines of what the kernel reports about a process's memory, in KiB.
func memory(t *testing.T, pid int, lines ...string) (sum int) {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if slices.Contains(lines, words[0]) {
			kib, err := strconv.Atoi(words[1])
			if err != nil {
				t.Fatal(err)
			}
			sum += kib
		}
	}
	return sum
}
