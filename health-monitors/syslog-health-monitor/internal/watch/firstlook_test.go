package watch

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// timestampedLine is a line of syslog with an XID of its own.
func (n *node) timestampedLine(at time.Time, code string) string {
	return at.UTC().Format("2006-01-02T15:04:05Z07:00") + " n1 kernel: " + line(code, "0000:3b:00")
}

// marks writes events down with their mark of a first look.
func marks(events []record.Event) (out []string) {
	for _, e := range events {
		out = append(out, e.ErrorCode[0]+" "+e.Metadata[MetadataInitialRead]+" "+e.GeneratedTimestamp.Format(time.RFC3339))
	}
	return out
}

func TestInitialReadIsBoundedAndMarked(t *testing.T) {
	n := newNode(t)
	n.policy.LookBack = 24 * time.Hour
	n.policy.UserLines = true
	now := n.clock.Now().UTC()
	at := func(ago time.Duration) string { return now.Add(-ago).Format(time.RFC3339) }
	n.log("Linux version 6.1",
		n.timestampedLine(now.Add(-30*24*time.Hour), "79"), // a GPU that was replaced since
		n.timestampedLine(now.Add(-25*time.Hour), "94"),
		n.timestampedLine(now.Add(-25*time.Hour), "162"),
		n.timestampedLine(now.Add(-23*time.Hour), "95"),
		line("63", "0000:3b:00"), // has no time
	)
	n.start()
	n.passes()
	n.log(n.timestampedLine(now, "48"))
	n.passes()
	want := []string{"95 true " + at(23*time.Hour), "63 true " + at(0), "48  " + at(0)}
	if diff := cmp.Diff(want, marks(n.delivered())); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if reported, old := n.value("nvsentinel_syslog_monitor_initial_read_faults_total", "reported"), n.value("nvsentinel_syslog_monitor_initial_read_faults_total", "too-old"); reported != 2 || old != 3 {
		t.Errorf("%v reported and %v too old", reported, old)
	}
	// A restart is no first look, however old what it finds.
	n.end()
	n.log(n.timestampedLine(now, "119"))
	n.clock.Step(100 * time.Hour)
	n.start()
	n.passes()
	if got := marks(n.delivered()); len(got) != 4 || got[3] != "119  "+at(0) {
		t.Errorf("after a restart: %v", got)
	}
	// A damaged outbox makes one: the faults of this boot come again, marked.
	n.end()
	n.write("outbox.db", strings.Repeat("damaged", 10_000))
	n.start()
	n.passes()
	if v := n.value("nvsentinel_syslog_monitor_outbox_replaced_total"); v != 1 {
		t.Errorf("%v outboxes replaced", v)
	}
	if got := marks(n.delivered()); len(got) != 5 || got[4][:7] != "63 true" {
		t.Errorf("after a damaged outbox: %v", got)
	}
}

// TestInitialReadResumesAfterACrash: until the end of the log was reached.
func TestInitialReadResumesAfterACrash(t *testing.T) {
	n := newNode(t)
	n.policy.LookBack = time.Hour
	now := n.clock.Now()
	for range linesAtOnce {
		n.log(n.timestampedLine(now.Add(-time.Minute), "31"))
	}
	n.log(n.timestampedLine(now.Add(-2*time.Hour), "79"), n.timestampedLine(now.Add(-time.Minute), "95"))
	n.start()
	if _, err := n.m.pass(); err != nil {
		t.Fatal(err)
	}
	n.restart()
	n.passes()
	events := n.delivered()
	if got := marks(events)[len(events)-1]; got != "95 true "+now.Add(-time.Minute).UTC().Format(time.RFC3339) || n.value("nvsentinel_syslog_monitor_initial_read_faults_total", "too-old") != 1 {
		t.Errorf("the last is %s", got)
	}
}

// TestOldFaultsSuppressNothing: neither the failures that follow from a lost
// GPU, nor what a pattern reports once in a while.
func TestOldFaultsSuppressNothing(t *testing.T) {
	n := newNode(t)
	n.policy.LookBack, n.policy.UserLines = time.Hour, true
	now := n.clock.Now()
	line := func(ago time.Duration, text string) string {
		return now.Add(-ago).UTC().Format(time.RFC3339) + " n1 kernel: " + text
	}
	failed := "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0xffff:2477)"
	n.log(n.timestampedLine(now.Add(-70*time.Minute), "79"))
	for _, ago := range []time.Duration{61 * time.Minute, 30 * time.Minute} {
		for range 10 { // reported once an hour
			n.log(line(ago, "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0"))
		}
	}
	n.log(line(20*time.Minute, failed))
	n.start()
	n.passes()
	var got []string
	for _, e := range n.delivered() {
		got = append(got, e.CheckName)
	}
	if diff := cmp.Diff([]string{"SysLogsKernelError", "SysLogsGPUDriverError"}, got); diff != "" {
		t.Errorf("checks (-want +got):\n%s", diff)
	}
}

// TestOldFaultsAreRemembered: a fault that no reboot cures may have been
// reported before the state was lost, and is not cleared with the others.
func TestOldFaultsAreRemembered(t *testing.T) {
	n := newNode(t)
	n.policy.LookBack = time.Hour
	n.log(n.timestampedLine(n.clock.Now().Add(-2*time.Hour), "74"), n.timestampedLine(n.clock.Now().Add(-2*time.Hour), "79"))
	n.start()
	n.passes()
	n.boot("boot-2")
	n.passes()
	n.wait(time.Hour)
	var got []string
	for _, e := range fullLines(n.delivered()) {
		if strings.HasPrefix(e, "SysLogsXIDError") {
			got = append(got, e)
		}
	}
	want := []string{"SysLogsXIDError | 79 | healthy | PCI=0000:3b:00 GPU_UUID=" + gpu0 + " GPU=0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
