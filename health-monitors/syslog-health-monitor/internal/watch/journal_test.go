package watch

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/internal/journaltest"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/internal/source"
)

const (
	journalBoot1 = "11111111-0000-4000-8000-000000000001"
	journalBoot2 = "22222222-0000-4000-8000-000000000002"
	journalBoot3 = "33333333-0000-4000-8000-000000000003"
)

// newJournalNode is a node whose kernel log is a real journal.
func newJournalNode(t *testing.T) (*node, *journaltest.Journal) {
	t.Helper()
	n, j := newNode(t), journaltest.New(t)
	tool := journaltest.Journalctl(t)
	n.source = func() logSource { return source.NewJournal(tool, j.Dir, n.clock) }
	n.boot(journalBoot1)
	return n, j
}

// catchUp lets the monitor work until it has read the journal to its end and has
// seen so many lines since it started.
func (n *node) catchUp(lines float64) {
	n.t.Helper()
	n.until(fmt.Sprint("the end of the journal after ", lines, " lines; so far ", n.value("nvsentinel_syslog_monitor_lines_total")), func() bool {
		more, err := n.m.pass()
		if err != nil {
			n.t.Fatal(err)
		}
		return !more && n.m.caught && len(n.m.pending) == 0 && n.value("nvsentinel_syslog_monitor_lines_total") >= lines
	})
}

// TestJournalOfThreeBoots reads three boots of a node from a journal: old boots are not
// reported again, and the unread end of a boot and a boot that nobody watched are reported
// under their own boot.
func TestJournalOfThreeBoots(t *testing.T) {
	n, j := newJournalNode(t)
	j.Kernel(journalBoot3, line("48", "0000:3b:00")) // an older boot, before the monitor was there
	j.Kernel(journalBoot1, "usb 1-1: new device", fallen)
	n.start()
	n.catchUp(2)
	n.delivered()
	j.Kernel(journalBoot1, line("31", "0000:3b:00"))
	n.catchUp(3)
	n.delivered()
	n.end()
	j.Kernel(journalBoot1, line("119", "0000:3b:00"))
	j.Rotate()
	j.Kernel(journalBoot3, line("120", "0000:3b:00")) // a boot that came and went while the monitor was down
	j.Kernel(journalBoot2, line("32", "0000:3b:00"))
	n.boot(journalBoot2)
	n.start()
	n.catchUp(3)
	n.delivered()
	n.wait(2 * time.Minute)
	n.expect("79 RESTART_BM "+journalBoot1, "31 NONE "+journalBoot1, "119 COMPONENT_RESET "+journalBoot1,
		"120 COMPONENT_RESET "+journalBoot3, "32 NONE "+journalBoot2, "healthy "+journalBoot2)
	for _, e := range n.delivered()[2:4] { // of boots before this machine booted
		if e.GeneratedTimestamp.Year() != 2026 {
			t.Errorf("event %s is of %s; want the time of its entry", e.ErrorCode, e.GeneratedTimestamp)
		}
	}
	n.restart()
	n.catchUp(0)
	n.wait(time.Hour)
	if got := len(n.delivered()); got != 8 {
		t.Errorf("%d events after another restart, want 8", got)
	}
	if v := n.value("nvsentinel_syslog_monitor_gaps_total"); v != 0 {
		t.Errorf("%v gaps", v)
	}
}

// TestJournalRebootWhileTheMonitorRuns turns to the new boot without a restart.
func TestJournalRebootWhileTheMonitorRuns(t *testing.T) {
	n, j := newJournalNode(t)
	j.Kernel(journalBoot1, fallen)
	n.start()
	n.catchUp(1)
	j.Kernel(journalBoot1, line("119", "0000:3b:00"))
	n.boot(journalBoot2)
	j.Kernel(journalBoot2, "Linux version 6.1")
	n.catchUp(3)
	n.delivered()
	n.wait(2 * time.Minute)
	n.expect("79 RESTART_BM "+journalBoot1, "119 COMPONENT_RESET "+journalBoot1, "healthy "+journalBoot2)
}

// TestJournalFloodWithFaultsAndPoison: faults among noise of 10,000 lines are
// found, each once and in order, across rotation and a restart in the middle.
func TestJournalFloodWithFaultsAndPoison(t *testing.T) {
	n, j := newJournalNode(t)
	n.policy.EveryEvent = true
	var want []string
	flood := func(from, to int) {
		var texts []string
		for i := from; i < to; i++ {
			text := fmt.Sprintf("noise %d %s", i, strings.Repeat("z", i%300))
			if i%500 == 499 {
				text = fmt.Sprintf("NVRM: Xid (PCI:0000:3b:00): 31, pid=%d, x", i)
				want = append(want, text)
			}
			texts = append(texts, text)
		}
		j.Kernel(journalBoot1, texts...)
		j.Bytes(journalBoot1, "MESSAGE", []byte("\x00\xff\xfe NVRM: Xid (PCI:\xff): 79"))
	}
	n.start()
	flood(0, 5000)
	j.Rotate()
	flood(5000, 10000)
	n.until("a part of the flood", func() bool {
		if _, err := n.m.pass(); err != nil {
			t.Fatal(err)
		}
		return n.value("nvsentinel_syslog_monitor_lines_total") > 3000
	})
	n.restart()
	flood(10000, 12000)
	n.until("all of it", func() bool {
		if _, err := n.m.pass(); err != nil {
			t.Fatal(err)
		}
		return int(n.outbox.Stats().LastSeq) >= len(want)
	})
	var got []string
	for _, e := range n.delivered() {
		got = append(got, e.Message)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// TestJournalGapIsCountedAndHoldsNothingUp: the journal is vacuumed while the
// monitor is down.
func TestJournalGapIsCountedAndHoldsNothingUp(t *testing.T) {
	n, j := newJournalNode(t)
	j.Kernel(journalBoot1, fallen)
	n.start()
	n.catchUp(1)
	n.delivered()
	n.end()
	j.Rotate()
	j.Kernel(journalBoot1, line("31", "0000:3b:00"))
	j.Remove(fallen)
	n.start()
	n.catchUp(1)
	n.expect("79 RESTART_BM "+journalBoot1, "LOG_GAP NONE persist-only "+journalBoot1, "31 NONE "+journalBoot1)
	if v := n.value("nvsentinel_syslog_monitor_gaps_total"); v != 1 {
		t.Errorf("%v gaps, want 1", v)
	}
}

// TestJournalProvesWriterOfResetOutcome: root is believed, a user is not.
func TestJournalProvesWriterOfResetOutcome(t *testing.T) {
	n, j := newJournalNode(t)
	output := func(success bool) string { return fmt.Sprintf("GPU reset executed: %s, success: %t", gpu0, success) }
	j.Kernel(journalBoot1, line("48", "0000:3b:00"))
	j.Program(journalBoot1, 1000, "nvsentinel-gpu-reset", output(true))
	j.Program(journalBoot1, 0, "nvsentinel-gpu-reset", output(false))
	j.Program(journalBoot1, 0, "nvsentinel-gpu-reset", output(true))
	n.start()
	n.catchUp(4)
	var got []string
	for _, e := range n.delivered() {
		what := string(e.RecommendedAction)
		if e.IsHealthy && e.RecommendedAction == record.ActionNone {
			what = "healthy"
		}
		got = append(got, e.ErrorCode[0]+" "+what)
	}
	if len(got) != 3 || got[0] != "48 COMPONENT_RESET" || got[1] != "GPU_RESET_FAILURE RESTART_VM" || !strings.HasSuffix(got[2], "healthy") {
		t.Errorf("events %v", got)
	}
	if v := n.value("nvsentinel_syslog_monitor_foreign_lines_total"); v != 1 {
		t.Errorf("foreign lines: %v", v)
	}
}

// TestJournalFloodIsReadAtItsOwnPace: no tick ever comes.
func TestJournalFloodIsReadAtItsOwnPace(t *testing.T) {
	n, j := newJournalNode(t)
	var texts []string
	for i := range 6000 {
		texts = append(texts, fmt.Sprint("noise ", i))
	}
	j.Kernel(journalBoot1, texts...)
	n.start()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	passes := n.m.Rounds()
	go func() { done <- n.m.Run(ctx, passes) }()
	n.until("all but the last lines of the flood", func() bool { return n.value("nvsentinel_syslog_monitor_lines_total") > 5000 })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
