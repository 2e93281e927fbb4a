package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/report"
)

const fallen = "NVRM: Xid (PCI:0000:3b:00): 79, pid=7, GPU has fallen off the bus."

func line(code, pci string) string {
	return "NVRM: Xid (PCI:" + pci + "): " + code + ", pid=7, x"
}

func TestReportsAFaultWithEverythingItKnows(t *testing.T) {
	n := newNode(t)
	n.log("[1.0] usb 1-1: new device", "2026-11-21T05:04:01Z n1 kernel: "+fallen)
	n.start()
	n.passes()
	got := n.delivered()
	want := []record.Event{{
		Version: 1, Agent: "syslog-health-monitor", ComponentClass: "GPU", CheckName: "SysLogsXIDError", IsFatal: true,
		Message: fallen, RecommendedAction: record.ActionRestartBM, ErrorCode: []string{"79"}, NodeName: "n1",
		EntitiesImpacted: []record.Entity{
			{EntityType: "PCI", EntityValue: "0000:3b:00"}, {EntityType: "GPU_UUID", EntityValue: gpu0}, {EntityType: "GPU", EntityValue: "0"},
		},
		Metadata: map[string]string{
			"bootID": "boot-1", "seq": "1", "seqEpoch": n.outbox.Epoch(), "seqRuns": n.outbox.Runs(), "chassis_serial": "C1", "firstLook": "true",
		},
		GeneratedTimestamp: time.Date(2026, 11, 21, 5, 4, 1, 0, time.Local).UTC(), ProcessingStrategy: record.Process, ID: got[0].ID,
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
	if v := n.value("syslog_health_monitor_xid_errors", "79"); v != 1 {
		t.Errorf("xid_errors{79} is %v", v)
	}
}

func TestRepeatedLinesAreNotSentAgainAfterARestart(t *testing.T) {
	n := newNode(t)
	n.log(fallen, fallen)
	n.start()
	n.passes()
	n.restart()
	n.passes()
	n.log(line("31", "0000:3b:00"))
	n.passes()
	n.restart()
	n.passes()
	n.expect("79 RESTART_BM boot-1", "79 RESTART_BM boot-1", "31 NONE boot-1")
}

func TestIdentityComesFromTheFileThenFromTheDriver(t *testing.T) {
	n := newNode(t)
	n.log("NVRM: GPU at PCI:0000:3b:00: "+gpu1, "NVRM: GPU at PCI:0000:5e:00: "+gpu1,
		line("95", "0000:3b:00"), line("95", "0000:5e:00"), line("95", "0000:af:00"))
	n.start()
	n.passes()
	n.expect("95 COMPONENT_RESET boot-1", "95 RESTART_VM boot-1", "95 RESTART_VM boot-1")
	// The driver's line is behind the place: it is remembered across a restart.
	n.restart()
	n.log(line("95", "0000:5e:00"))
	n.passes()
	// The file is read again when it changes.
	n.write("gpu_metadata.json", `{"gpus":[{"gpu_id":3,"uuid":"`+gpu1+`","pci_address":"0000:5e:00.0"}]}`)
	n.log(line("95", "0000:5e:00"))
	n.passes()
	var got []string
	for _, e := range n.delivered() {
		var names []string
		for _, x := range e.EntitiesImpacted {
			names = append(names, x.EntityType+"="+x.EntityValue)
		}
		got = append(got, strings.Join(names, " ")+" "+string(e.RecommendedAction))
	}
	want := []string{
		"PCI=0000:3b:00 GPU_UUID=" + gpu0 + " GPU=0 COMPONENT_RESET",
		"PCI=0000:5e:00 GPU_UUID=" + gpu1 + " RESTART_VM",
		"PCI=0000:af:00 RESTART_VM",
		"PCI=0000:5e:00 GPU_UUID=" + gpu1 + " RESTART_VM",
		"PCI=0000:5e:00 GPU_UUID=" + gpu1 + " GPU=3 COMPONENT_RESET",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("identities (-want +got):\n%s", diff)
	}
}

func TestMissingMetadataDegradesOnlyTheIdentity(t *testing.T) {
	n := newNode(t)
	if err := os.Remove(n.path("gpu_metadata.json")); err != nil {
		t.Fatal(err)
	}
	n.log(fallen)
	n.start()
	n.passes()
	n.passes()
	n.expect("79 RESTART_BM boot-1")
	if v := n.value("nvsentinel_syslog_monitor_metadata_errors_total"); v != 1 {
		t.Errorf("the missing file was counted %v times", v)
	}
	n.write("gpu_metadata.json", "{broken")
	n.passes()
	if v := n.value("nvsentinel_syslog_monitor_metadata_errors_total"); v != 2 {
		t.Errorf("missing and broken were counted %v times", v)
	}
}

func TestLinesOfProgramsAreNotBelieved(t *testing.T) {
	n := newNode(t)
	n.log("Nov 21 05:04:01 n1 logger[5]: NVRM: Xid (PCI:0000:3b:00): 79, pid=7", fallen)
	n.start()
	n.passes()
	n.expect("79 RESTART_BM boot-1")
	if v := n.value("nvsentinel_syslog_monitor_foreign_lines_total"); v != 1 {
		t.Errorf("foreign lines: %v", v)
	}
	n.policy.UserLines = true
	n.restart()
	n.log("Nov 21 05:04:01 n1 logger[5]: NVRM: Xid (PCI:0000:3b:00): 79, pid=7")
	n.passes()
	n.expect("79 RESTART_BM boot-1", "79 RESTART_BM boot-1")
}

func TestFloodOfForeignBytesIsRead(t *testing.T) {
	n := newNode(t)
	n.log(strings.Repeat("\xff", 1<<20), "\x00\x01", "NVRM: Xid (PCI:0000:3b:00): 79, "+strings.Repeat("\xfe", 1<<20))
	for range 2000 {
		n.log("[1.0] something else")
	}
	n.log(line("999999999999999999999", "0000:3b:00"))
	n.start()
	n.passes()
	n.expect("79 RESTART_BM boot-1", "999999999999999999999 CONTACT_SUPPORT boot-1")
	if v := n.value("syslog_health_monitor_xid_errors", "unknown"); v != 1 {
		t.Errorf("xid_errors{unknown} is %v", v)
	}
}

func TestFullOutboxHoldsTheSourceBack(t *testing.T) {
	n := newNode(t)
	n.options.MaxEntries = 3
	n.connector.Cut()
	var want []string
	for i := range 10 {
		n.log(line(fmt.Sprint(200+i), "0000:3b:00"))
		want = append(want, fmt.Sprint(200+i)+" CONTACT_SUPPORT boot-1")
	}
	n.start()
	n.passesUntilFull()
	if s := n.outbox.Stats(); s.Entries != 3 || s.Refused == 0 {
		t.Errorf("outbox %+v; want three entries and refusals", s)
	}
	n.restart() // what did not fit is in the log still
	n.passesUntilFull()
	n.connector.Listen(t)
	n.until("the rest to fit", func() bool {
		_, err := n.m.pass()
		return err == nil && n.outbox.Stats().LastSeq == 10
	})
	n.expect(want...)
}

// passesUntilFull lets the monitor work until it reports that the outbox is full.
func (n *node) passesUntilFull() {
	n.t.Helper()
	for range 100 {
		if _, err := n.m.pass(); errors.Is(err, report.ErrFull) {
			return
		} else if err != nil {
			n.t.Fatal(err)
		}
	}
	n.t.Fatal("the outbox did not fill")
}

func TestUnreadableBootIDReadsNothing(t *testing.T) {
	n := newNode(t)
	n.log(fallen)
	n.boot("")
	n.start()
	for _, bad := range []string{"", "two words", strings.Repeat("x", 200)} {
		n.boot(bad)
		if _, err := n.m.pass(); err == nil {
			t.Errorf("boot id %q was accepted", bad)
		}
	}
	if s := n.outbox.Stats(); s.LastSeq != 0 {
		t.Errorf("outbox %+v", s)
	}
	n.boot("boot-1")
	n.passes()
	n.boot("") // unreadable later: the known one stands
	n.log(fallen)
	n.passes()
	n.expect("79 RESTART_BM boot-1", "79 RESTART_BM boot-1")
}

func TestMissingLogIsAwaited(t *testing.T) {
	n := newNode(t)
	n.away = true
	n.start()
	if _, err := n.m.pass(); err == nil {
		t.Error("a missing log was not told")
	}
	n.away = false
	n.log(fallen)
	n.passes()
	n.expect("79 RESTART_BM boot-1")
}

func TestRunPollsAtEachTickAndReportsState(t *testing.T) {
	n := newNode(t)
	n.boot("")
	n.start()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	passes := n.m.Rounds()
	go func() { done <- n.m.Run(ctx, passes) }()
	n.until("the missing boot id to show", func() bool { _, why := passes.Ready(); return strings.Contains(why, "reading the boot ID") })
	n.boot("boot-1")
	n.log(fallen)
	n.until("the event", func() bool {
		n.clock.Step(Tick)
		return len(n.connector.Events()) == 1
	})
	n.until("readiness", func() bool { ok, _ := passes.Ready(); return ok })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// until polls a condition of a running monitor.
func (n *node) until(what string, ok func() bool) {
	n.t.Helper()
	deadline := time.After(2 * time.Minute)
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for !ok() {
		select {
		case <-poll.C:
		case <-deadline:
			n.t.Fatalf("waiting for %s", what)
		}
	}
}
