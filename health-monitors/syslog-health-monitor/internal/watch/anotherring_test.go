package watch

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/internal/source"
	"github.com/nvidia/nvsentinel/internal/kmsgtest"
)

// TestRestartedRingIsReadFromItsBeginning: its faults are reported,
// and one event reports that lines may have been lost.
func TestRestartedRingIsReadFromItsBeginning(t *testing.T) {
	n := newNode(t)
	kernel, err := kmsgtest.Open(n.path("kernel"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.end()
		if err := kernel.Close(); err != nil {
			t.Error(err)
		}
	})
	n.source = func() logSource { return source.NewKmsg(kernel.Path(), n.clock) }
	var want []string
	reports := func(fault string, codes ...string) {
		t.Helper()
		if err := kernel.Print("eth0: link up", fault); err != nil {
			t.Fatal(err)
		}
		want = append(want, codes...)
		n.until(fmt.Sprintf("%d events", len(want)), func() bool {
			n.passes()
			return int(n.outbox.Stats().LastSeq) >= len(want)
		})
		var got []string
		for _, e := range n.delivered() {
			got = append(got, e.ErrorCode[0])
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("events (-want +got):\n%s", diff)
		}
	}
	n.start()
	reports(line("48", "0000:3b:00"), "48")
	n.restart()
	reports(line("95", "0000:3b:00"), "95")
	n.end()
	kernel.Reboot()
	n.start()
	reports(line("79", "0000:3b:00"), GapCode, "79")
	if gaps := n.value("nvsentinel_syslog_monitor_gaps_total"); gaps != 1 {
		t.Errorf("%v gaps, want 1", gaps)
	}
	n.restart()
	reports(line("119", "0000:3b:00"), "119")
}

// restartedLog begins again at its first read after each opening.
type restartedLog struct {
	writtenLog
	reported bool
}

func (r *restartedLog) Read(limit int) (source.Batch, error) {
	if !r.reported {
		r.reported, r.at = true, 0
		return source.Batch{Restarted: true}, nil
	}
	return r.writtenLog.Read(limit)
}

// TestRestartedLogIsAnInitialRead: its faults may have been reported before.
func TestRestartedLogIsAnInitialRead(t *testing.T) {
	n := newNode(t)
	n.policy.LookBack = time.Hour
	now := n.clock.Now()
	n.log(n.timestampedLine(now.Add(-2*time.Hour), "79"), n.timestampedLine(now.Add(-time.Minute), "48"))
	n.start()
	n.passes()
	n.end()
	n.source = func() logSource { return &restartedLog{writtenLog: writtenLog{node: n}} }
	n.start()
	if _, err := n.m.pass(); err != nil {
		t.Fatal(err)
	}
	n.clock.Step(time.Minute)
	n.passes()
	n.log(n.timestampedLine(n.clock.Now(), "95"))
	n.passes()
	at := func(when time.Time) string { return when.UTC().Format(time.RFC3339) }
	want := []string{
		"48 true " + at(now.Add(-time.Minute)), "48 true " + at(now.Add(-time.Minute)), "95  " + at(n.clock.Now()),
	}
	if diff := cmp.Diff(want, marks(n.delivered())); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
