package watch

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/internal/source"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/storm"
	"github.com/nvidia/nvsentinel/internal/report"
)

// stormOf logs count lines with an XID of one GPU, each with a process of its own.
func (n *node) stormOf(code string, count int) {
	n.t.Helper()
	var lines []string
	for i := range count {
		lines = append(lines, fmt.Sprintf("[100.0] NVRM: Xid (PCI:0000:3b:00): %s, pid=%d, name=python, Ch 00000008", code, i))
	}
	n.log(lines...)
}

// counts writes events down with how many each stands for, and joins those that
// stand for themselves.
func counts(events []record.Event) (out []string) {
	single := 0
	for i, e := range events {
		what := summarize(events[i : i+1])[0]
		n, _ := e.Repeats()
		if single++; n == 1 && i+1 < len(events) && summarize(events[i+1 : i+2])[0] == what {
			if next, _ := events[i+1].Repeats(); next == 1 {
				continue
			}
		}
		if n > 1 {
			out = append(out, fmt.Sprintf("%s of %d", what, n))
		} else {
			out = append(out, fmt.Sprintf("%s %d times", what, single))
		}
		single = 0
	}
	return out
}

func (n *node) expectCounts(want ...string) {
	n.t.Helper()
	if diff := cmp.Diff(want, counts(n.delivered())); diff != "" {
		n.t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestAStormHoldsNoOtherFaultBackAndIsCounted(t *testing.T) {
	n := newNode(t)
	n.start()
	n.passes() // the first look is over
	n.stormOf("31", 5000)
	n.log(line("79", "0000:5e:00"))
	n.passes()
	n.expectCounts("31 NONE boot-1 10 times", "79 RESTART_BM boot-1 1 times")
	n.stormOf("31", 100)
	n.passes()
	n.wait(storm.QuietPeriod)
	n.expectCounts("31 NONE boot-1 10 times", "79 RESTART_BM boot-1 1 times", "31 NONE boot-1 of 5090")
	events := n.delivered()
	if last := events[11]; !strings.Contains(last.Message, "pid=99,") || last.Metadata["seq"] != "12" {
		t.Errorf("the last of the storm is %+v", last)
	}
	if x, c := n.value("syslog_health_monitor_xid_errors", "31"), n.value("nvsentinel_syslog_monitor_events_aggregated_total"); x != 5100 || c != 5090 {
		t.Errorf("%v XIDs, %v of them counted", x, c)
	}
	n.policy.EveryEvent = true
	n.restart()
	n.stormOf("32", 30)
	n.passes()
	n.expectCounts("31 NONE boot-1 10 times", "79 RESTART_BM boot-1 1 times", "31 NONE boot-1 of 5090", "32 NONE boot-1 30 times")
}

// TestACountOutlivesACrash: whatever of a storm was counted is counted again from
// the place that is written down, once.
func TestACountOutlivesACrash(t *testing.T) {
	n := newNode(t)
	n.start()
	for i := range 6 {
		n.stormOf("31", 600)
		if i%2 == 0 {
			n.passes()
		} else if _, err := n.m.pass(); err != nil { // in the middle of it
			t.Fatal(err)
		}
		n.clock.Step(time.Second)
		n.restart()
	}
	n.passes()
	n.restart()
	n.wait(storm.Window)
	n.expectCounts("31 NONE boot-1 10 times", "31 NONE boot-1 of 3590")
}

func TestRecoveryFollowsStorm(t *testing.T) {
	n := newNode(t)
	n.policy.UserLines = true
	n.stormOf("31", 100)
	n.log(resetLine(gpu0, true))
	n.stormOf("31", 1)
	n.start()
	n.passes()
	n.expectCounts("31 NONE boot-1 10 times", "31 NONE boot-1 of 90", "healthy boot-1 1 times", "31 NONE boot-1 1 times")
	n.stormOf("32", 50)
	n.passes()
	n.boot("boot-2")
	n.passes()
	n.delivered()
	n.wait(2 * time.Minute)
	got := counts(n.delivered())[4:]
	want := []string{"32 NONE boot-1 10 times", "32 NONE boot-1 of 40", "healthy boot-2 3 times"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// TestARecoveryWaitsForTheEndOfAStorm: the events that are only counted are signs
// of life all the same.
func TestARecoveryWaitsForTheEndOfAStorm(t *testing.T) {
	n := newNode(t)
	n.start()
	n.passes()
	n.boot("boot-2")
	n.passes()
	for range 20 {
		n.stormOf("31", 50)
		n.wait(time.Minute)
	}
	healthy := func() (out []string) {
		for _, e := range n.delivered() {
			if e.IsHealthy && e.CheckName == "SysLogsXIDError" {
				out = append(out, e.Message)
			}
		}
		return out
	}
	if got := healthy(); len(got) != 0 {
		t.Errorf("recovered %v in a storm", got)
	}
	n.wait(2 * time.Minute)
	if got := healthy(); len(got) != 1 {
		t.Errorf("recovered %v after it", got)
	}
}

// TestTalkOfTheDriverCostsNoWrite: what makes no event is written down at the
// pace of the place.
func TestTalkOfTheDriverCostsNoWrite(t *testing.T) {
	n := newNode(t)
	n.start()
	n.passes()
	n.log("[1.0] eth0: link up")
	n.wait(notePace)
	began := n.m.noted
	for range 4 {
		n.log(strings.Split(strings.TrimSpace(strings.Repeat("[1.0] NVRM: nvAssertOkFailedNoLog: GPU lost\n", 2000)), "\n")...)
		n.wait(time.Second)
	}
	if !n.m.noted.Equal(began) || !n.m.dirty {
		t.Errorf("the place was written %s after the last time", n.m.noted.Sub(began))
	}
	n.wait(notePace)
	if n.m.noted.Equal(began) || n.m.dirty {
		t.Error("the place was never written")
	}
}

// TestALostStretchOfTheLogIsAnEvent: the file that was read last is gone.
func TestALostStretchOfTheLogIsAnEvent(t *testing.T) {
	for strategy, want := range map[record.Strategy][]string{
		record.PersistOnly: {"SysLogsGap | LOG_GAP | NONE persist-only | ", "SysLogsXIDError | 79 | RESTART_BM | PCI=0000:5e:00"},
		record.Process:     {"SysLogsGap | LOG_GAP | NONE | ", "SysLogsXIDError | 79 | RESTART_BM | PCI=0000:5e:00"},
	} {
		t.Run(string(strategy), func(t *testing.T) {
			n := newNode(t)
			n.policy.GapStrategy = strategy
			n.log("[1.0] usb 1-1: new device")
			n.start()
			n.passes()
			n.wait(notePace)
			n.end()
			n.log("usb 1-1: lost")
			n.overwritten = len(n.written)
			n.log(line("79", "0000:5e:00"))
			n.start()
			n.passes()
			n.restart()
			n.passes()
			n.expectFull(want...)
			if v := n.value("nvsentinel_syslog_monitor_gap_events_total"); v != 0 { // of this process
				t.Errorf("%v gaps", v)
			}
			n.boot("boot-2")
			n.passes()
			n.wait(2 * time.Minute)
			var recovered bool
			for _, e := range n.delivered() {
				recovered = recovered || e.IsHealthy && e.CheckName == GapCheck && e.ProcessingStrategy == record.Process
			}
			if recovered != (strategy == record.Process) {
				t.Errorf("recovery of the gap: %t", recovered)
			}
		})
	}
}

// TestFullDiskStoresFittingEvents: half as many lines for each time that it is full.
func TestFullDiskStoresFittingEvents(t *testing.T) {
	full := fmt.Errorf("writing: %w", syscall.ENOSPC)
	for capacity, want := range map[int][]int{
		512: {512}, 200: {512, 256, 128}, 1: {512, 256, 128, 64, 32, 16, 8, 4, 2, 1}, 0: {512, 256, 128, 64, 32, 16, 8, 4, 2, 1},
	} {
		var tried []int
		taken, err := fitting(make([]source.Line, 512), func(lines []source.Line) (batch, error) {
			if tried = append(tried, len(lines)); len(lines) > capacity {
				return batch{}, full
			}
			return batch{lines: len(lines)}, nil
		})
		if diff := cmp.Diff(want, tried); diff != "" || (err != nil) != (capacity == 0) || capacity > 0 && taken.lines != want[len(want)-1] {
			t.Errorf("room for %d: error %v, %d lines, tries (-want +got):\n%s", capacity, err, taken.lines, diff)
		}
	}
	var tried []int
	taken, err := fitting(make([]source.Line, 9), func(lines []source.Line) (batch, error) {
		if tried = append(tried, len(lines)); len(lines) > 4 {
			return batch{lines: 4}, report.ErrFull
		}
		return batch{lines: len(lines)}, nil
	})
	if err != nil || taken.lines != 4 || len(tried) != 2 {
		t.Errorf("a full outbox: %d lines after %v, error %v", taken.lines, tried, err)
	}
}

// BenchmarkLines measures how fast a monitor reads lines; the case "floor" has nothing to
// report.
func BenchmarkLines(b *testing.B) {
	for name, text := range map[string]string{
		"floor": "[1.0] eth0: link is up, 100 Gbps full duplex, and so on",
		"noise": "[1.0] NVRM: nvAssertOkFailedNoLog: Assertion failed: GPU lost",
		"storm": "[1.0] NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=python, Ch 8",
	} {
		b.Run(name, func(b *testing.B) {
			n := newNode(b)
			const lines = 100_000
			for range lines {
				n.log(text)
			}
			for b.Loop() {
				if err := os.RemoveAll(n.path("outbox.db")); err != nil {
					b.Fatal(err)
				}
				n.start()
				n.passes()
				n.end()
			}
			b.ReportMetric(float64(lines)*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
		})
	}
}
