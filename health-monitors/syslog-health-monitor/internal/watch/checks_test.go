package watch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
)

const (
	fellFirst  = "[9.0] NVRM: The NVIDIA GPU 0000:3b:00.0"
	fellSecond = "[9.0] NVRM: (PCI ID: 10de:2330) installed in this system has"
	fellThird  = "[9.0] NVRM: fallen off the bus and is not responding to commands."
	sxidFatal  = "[9.0] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 23001, Fatal, Link 46 ingress SRC-VC buffer overflow"
	notice     = "[9.0] NVRM: Xid (PCI:0000:3b:00): 162, pid=1, PSHC engaged"
)

func resetLine(uuid string, success bool) string {
	return fmt.Sprintf("Nov 21 05:04:01 n1 nvsentinel-gpu-reset[7]: GPU reset executed: %s, success: %t", uuid, success)
}

// fullLines writes events down in a line each, with check, entities and codes.
func fullLines(events []record.Event) []string {
	var out []string
	for _, e := range events {
		var names []string
		for _, x := range e.EntitiesImpacted {
			names = append(names, x.EntityType+"="+x.EntityValue)
		}
		what := string(e.RecommendedAction)
		if e.IsHealthy {
			what = "healthy"
		}
		if e.ProcessingStrategy == record.PersistOnly {
			what += " persist-only"
		}
		out = append(out, strings.Join([]string{e.CheckName, strings.Join(e.ErrorCode, "+"), what, strings.Join(names, " ")}, " | "))
	}
	return out
}

func (n *node) expectFull(want ...string) {
	n.t.Helper()
	if diff := cmp.Diff(want, fullLines(n.delivered())); diff != "" {
		n.t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestEveryCheckReportsWithTheStrategyAndRecoversAfterAReboot(t *testing.T) {
	for _, strategy := range []record.Strategy{record.Process, record.PersistOnly} {
		t.Run(string(strategy), func(t *testing.T) {
			n := newNode(t)
			n.policy.Strategy = strategy
			n.policy.UserLines = true // a file does not prove who wrote the reset's outcome
			n.write("gpu_metadata.json", `{"gpus":[{"gpu_id":0,"uuid":"`+gpu0+`","pci_address":"0000:3b:00.0",
				"nvlinks":[{"link_id":1,"remote_pci_address":"0000:C1:00.0","remote_link_id":46}]}]}`)
			n.log(fallen, sxidFatal, fellFirst, fellSecond, fellThird, resetLine(gpu0, false))
			n.start()
			n.passes()
			n.delivered()
			n.boot("boot-2")
			n.passes()
			n.wait(2 * time.Minute)
			const gpu = "PCI=0000:3b:00 GPU_UUID=" + gpu0 + " GPU=0"
			want := []string{
				"SysLogsXIDError | 79 | RESTART_BM | " + gpu,
				"SysLogsSXIDError | 23001 | RESTART_BM | NVSWITCH=3 PCI=0000:c1:00 NVLINK=46 GPU=0 GPU_UUID=" + gpu0,
				"SysLogsGPUFallenOff | GPU_FALLEN_OFF_BUS | RESTART_BM | " + gpu,
				"SysLogsXIDError | GPU_RESET_FAILURE | RESTART_VM | " + gpu,
				"SysLogsGPUFallenOff |  | healthy | ", "SysLogsSXIDError |  | healthy | ", "SysLogsXIDError |  | healthy | ",
			}
			if strategy == record.PersistOnly {
				for i, w := range want {
					parts := strings.Split(w, " | ")
					parts[2] += " persist-only"
					want[i] = strings.Join(parts, " | ")
				}
			}
			n.expectFull(want...)
			for metric, value := range map[string]float64{"syslog_health_monitor_xid_errors": 1, "syslog_health_monitor_sxid_errors": 1, "syslog_health_monitor_gpu_fallen_errors": 1, "nvsentinel_syslog_monitor_gpu_resets_total": 1} {
				if got := n.value(metric); got != value {
					t.Errorf("%s is %v, want %v", metric, got, value)
				}
			}
		})
	}
}

func TestFaultOfOneCheckDoesNotWithholdTheRecoveryOfAnother(t *testing.T) {
	n := newNode(t)
	n.start()
	// SXID 11012 called fatal by the driver is for a person, whatever is rebooted.
	n.log(fellFirst, fellSecond, fellThird, "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 11012, Fatal, Link 4 x")
	n.passes()
	n.delivered()
	n.boot("boot-2")
	n.passes()
	n.wait(time.Hour)
	got := fullLines(n.delivered())[2:]
	if diff := cmp.Diff([]string{"SysLogsGPUFallenOff |  | healthy | ", "SysLogsXIDError |  | healthy | "}, got); diff != "" {
		t.Errorf("recoveries (-want +got):\n%s", diff)
	}
	if v := n.value("nvsentinel_syslog_monitor_recoveries_total", "SysLogsSXIDError", "NotCured"); v != 1 {
		t.Errorf("withheld %v times", v)
	}
}

// TestBeginningOfAMessageIsRememberedAcrossARestart: its lines come in different
// passes, with noise between and a restart.
func TestBeginningOfAMessageIsRememberedAcrossARestart(t *testing.T) {
	n := newNode(t)
	n.log(fellFirst, "[9.0] eth0: link down")
	n.start()
	n.passes()
	n.log("[9.0] eth0: link up", "[9.0] eth0: link up")
	n.passes()
	n.restart()
	n.log(fellSecond)
	n.passes()
	n.end() // the last lines are of a boot that is past when they are read
	n.log(fellThird)
	n.boot("boot-2")
	n.start()
	n.passes()
	n.delivered()
	n.wait(2 * time.Minute)
	events := n.delivered()
	if len(events) != 4 || events[0].ErrorCode[0] != "GPU_FALLEN_OFF_BUS" || events[0].BootID() != "boot-1" || events[0].Metadata["pciID"] != "10de:2330" {
		t.Errorf("events %v", fullLines(events))
	}
}

func TestSuccessfulResetClearsOnlyCuredFaults(t *testing.T) {
	n := newNode(t)
	n.policy.UserLines = true
	n.log(line("48", "0000:3b:00"), line("31", "0000:3b:00"), line("74", "0000:3b:00"),
		"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", line("31", "0000:5e:00"))
	n.start()
	n.passes()
	n.restart() // what was reported is remembered beside the outbox
	n.log(resetLine(gpu0, true))
	n.passes()
	events := n.delivered()
	last := events[len(events)-1]
	if !last.IsHealthy || fullLines(events[5:])[0] != "SysLogsXIDError | "+strings.Join(last.ErrorCode, "+")+" | healthy | PCI=0000:3b:00 GPU_UUID="+gpu0+" GPU=0" {
		t.Fatalf("events %v", fullLines(events))
	}
	for code, want := range map[string]bool{"48": true, "31": true, "154": true, "95": true, "GPU_RESET_FAILURE": true, "74": false, "79": false} {
		if slices.Contains(last.ErrorCode, code) != want {
			t.Errorf("code %s cleared: %t", code, !want)
		}
	}
	// The reset has not made the node recover: 74 still withholds it.
	n.boot("boot-2")
	n.passes()
	n.wait(time.Hour)
	if v := n.value("nvsentinel_syslog_monitor_recoveries_total", "SysLogsXIDError", "NotCured"); v != 1 {
		t.Errorf("withheld %v times", v)
	}
}

func TestResetOfAnUnknownGPUIsNoPoison(t *testing.T) {
	n := newNode(t)
	n.policy.UserLines = true
	n.log(resetLine(gpu1, true), "NVRM: GPU at PCI:0000:5e:00: "+gpu1, resetLine(gpu1, false), fallen)
	n.start()
	n.passes()
	events := n.delivered()
	got := fullLines(events)
	if len(got) != 3 || !strings.HasSuffix(got[0], "| healthy | GPU_UUID="+gpu1) ||
		got[1] != "SysLogsXIDError | GPU_RESET_FAILURE | RESTART_VM | PCI=0000:5e:00 GPU_UUID="+gpu1 || events[2].ErrorCode[0] != "79" {
		t.Errorf("events %v", got)
	}
}

func TestLinesOfProgramsAreNotBelievedByAnyCheck(t *testing.T) {
	n := newNode(t)
	const forged = "Nov 21 05:04:01 n1 logger[5]: "
	n.log(resetLine(gpu0, true), forged+sxidFatal[6:], forged+fellFirst[6:], fellThird, fellFirst, forged+fellThird[6:])
	n.start()
	n.passes()
	n.expectFull()
	if v := n.value("nvsentinel_syslog_monitor_foreign_lines_total"); v != 4 {
		t.Errorf("foreign lines: %v", v)
	}
}

func TestCancellationClearsOnTheSameDevice(t *testing.T) {
	n := newNode(t)
	n.policy.Cancels = map[string][]string{"162": {"163", "74"}}
	n.log(line("163", "0000:3b:00"), line("74", "0000:3b:00"), line("74", "0000:5e:00"), notice)
	n.start()
	n.passes()
	events := n.delivered()
	last := events[len(events)-1]
	want := "SysLogsXIDError | 163+74 | healthy | PCI=0000:3b:00 GPU_UUID=" + gpu0 + " GPU=0"
	if fullLines(events)[4] != want || last.Metadata["nvsentinel.nvidia.com/cancel-source-error-code"] != "162" {
		t.Errorf("event %v, metadata %v", fullLines(events)[4], last.Metadata)
	}
	if v := n.value("syslog_health_monitor_cancellations_emitted_total", "162", "74"); v != 1 {
		t.Errorf("counted %v", v)
	}
	// The other GPU's 74 is not cancelled and withholds the recovery.
	n.boot("boot-2")
	n.passes()
	n.wait(time.Hour)
	if v := n.value("nvsentinel_syslog_monitor_recoveries_total", "SysLogsXIDError", "NotCured"); v != 1 {
		t.Errorf("withheld %v times", v)
	}
}

// TestLineOfSeveralEventsIsTakenWholeOrNotAtAll: the outbox has capacity for the
// report of a line but not for its cancellation.
func TestLineOfSeveralEventsIsTakenWholeOrNotAtAll(t *testing.T) {
	n := newNode(t)
	n.options.MaxEntries = 2
	n.policy.Cancels = map[string][]string{"162": {"163"}}
	n.connector.Cut()
	n.log(line("163", "0000:3b:00"), notice, line("31", "0000:3b:00"))
	n.start()
	n.passesUntilFull()
	if s := n.outbox.Stats(); s.Entries != 1 {
		t.Errorf("outbox %+v; want the first line alone", s)
	}
	n.restart()
	n.connector.Listen(t)
	n.until("the rest to fit", func() bool {
		_, err := n.m.pass()
		return err == nil && n.outbox.Stats().LastSeq == 4
	})
	var got []string
	for _, e := range n.delivered() {
		got = append(got, fmt.Sprint(strings.Join(e.ErrorCode, "+"), " ", e.IsHealthy))
	}
	if diff := cmp.Diff([]string{"163 false", "162 false", "163 true", "31 false"}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// TestActionThatTheDriverTakesBackIsCleared: XID 154 back to 0 clears the 154 of
// that GPU, and the memory of it.
func TestActionThatTheDriverTakesBackIsCleared(t *testing.T) {
	n := newNode(t)
	const changed = "): 154, GPU recovery action changed from 0x%d (x) to 0x%d (y)"
	n.log("NVRM: Xid (PCI:0000:3b:00"+fmt.Sprintf(changed, 0, 9), "NVRM: Xid (PCI:0000:5e:00"+fmt.Sprintf(changed, 0, 2), fallen,
		"NVRM: Xid (PCI:0000:3b:00"+fmt.Sprintf(changed, 9, 0))
	n.start()
	n.passes()
	got := fullLines(n.delivered())
	if want := "SysLogsXIDError | 154 | healthy | PCI=0000:3b:00 GPU_UUID=" + gpu0 + " GPU=0"; len(got) != 4 || got[3] != want {
		t.Fatalf("events %v, want the last to be %s", got, want)
	}
	if v := n.value("syslog_health_monitor_cancellations_emitted_total", "154", "154"); v != 1 {
		t.Errorf("counted %v", v)
	}
	// The undecided 154, which no reboot cures, no longer withholds anything.
	n.boot("boot-2")
	n.passes()
	n.wait(2 * time.Minute)
	if v := n.value("nvsentinel_syslog_monitor_recoveries_total", "SysLogsXIDError", "Settled"); v != 1 {
		t.Errorf("recovered %v times", v)
	}
}

func TestRegistersAreEvaluatedByDriverVersion(t *testing.T) {
	n := newNode(t)
	const text = "NVRM: Xid (PCI:0000:3b:00): 144, pid=1, SAW_MVB Fatal XC0 i0 Link 05 (0x00000021 0x00000002 0x0)"
	for _, driver := range []string{"570.1", "580.2"} {
		n.write("gpu_metadata.json", `{"driver_version":"`+driver+`","gpus":[{"gpu_id":0,"uuid":"`+gpu0+`","pci_address":"0000:3b:00.0"}]}`)
		if n.stop == nil {
			n.start()
		}
		n.log(text)
		n.passes()
		n.delivered()
	}
	n.expect("144.SAW_MVB COMPONENT_RESET boot-1", "144.SAW_MVB CONTACT_SUPPORT boot-1")
	if e := n.delivered()[1]; !e.IsFatal || e.Metadata["xidPolicy"] != "no-matching-row" {
		t.Errorf("event %+v", e)
	}
	if v := n.value("syslog_health_monitor_xid_errors", "144"); v != 2 {
		t.Errorf("xid_errors{144} is %v", v)
	}
}

// TestClearingCarriesTheStrategyOfTheFault: a reset and a cancellation clear
// what was reported, under the strategy it was reported with.
func TestClearingCarriesTheStrategyOfTheFault(t *testing.T) {
	for _, c := range []struct{ before, after, cleared record.Strategy }{
		{record.PersistOnly, record.PersistOnly, record.PersistOnly},
		{record.PersistOnly, record.Process, record.PersistOnly},
		{record.Process, record.PersistOnly, record.Process},
	} {
		t.Run(string(c.before)+" then "+string(c.after), func(t *testing.T) {
			n := newNode(t)
			n.policy.UserLines, n.policy.Cancels = true, map[string][]string{"48": {"31"}}
			n.policy.Strategy = c.before
			n.log(line("31", "0000:3b:00"), line("48", "0000:3b:00"))
			n.start()
			n.passes()
			n.policy.Strategy = c.after
			n.restart()
			n.log(resetLine(gpu0, true))
			n.passes()
			var got []record.Strategy
			for _, e := range n.delivered() {
				got = append(got, e.ProcessingStrategy)
			}
			if diff := cmp.Diff([]record.Strategy{c.before, c.before, c.before, c.cleared}, got); diff != "" {
				t.Errorf("strategies (-want +got):\n%s", diff)
			}
		})
	}
}
