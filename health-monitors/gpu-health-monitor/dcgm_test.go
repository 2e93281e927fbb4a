package main

import (
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
)

const gpu1 = "[GPU=1 PCI=00000000:11:00.0 GPU_UUID=GPU-00000001]"

func gpu(id uint) reading.Entity { return reading.Entity{Kind: reading.GPU, ID: id} }

// TestTheFaultTable: each fault as DCGM was measured to show it, through go-dcgm,
// begins and ends as one event.
func TestTheFaultTable(t *testing.T) {
	n := newNode(t, 2)
	n.start()
	for _, c := range []struct {
		fault  string
		system uint32
		health reading.Health
		code   uint
		want   string // check and code
		rest   string
	}{
		{"dbe", 0x10, 20, 4, "GpuMemWatch DCGM_FR_VOLATILE_DBE_DETECTED", "fatal COMPONENT_RESET"},
		{"remap-fail", 0x10, 20, 80, "GpuMemWatch DCGM_FR_ROW_REMAP_FAILURE", "fatal CONTACT_SUPPORT"},
		{"remap-unc", 0x10, 10, 132, "GpuMemWatch DCGM_FR_UNCORRECTABLE_ROW_REMAP_LIMIT", "warning CONTACT_SUPPORT"},
		{"retired-pending", 0x10, 10, 6, "GpuMemWatch DCGM_FR_PENDING_PAGE_RETIREMENTS", "warning NONE"},
		{"retired-hard", 0x10, 20, 7, "GpuMemWatch DCGM_FR_RETIRED_PAGES_LIMIT", "fatal CONTACT_SUPPORT"},
		{"unrepairable", 0x10, 20, 52, "GpuMemWatch DCGM_FR_FAULTY_MEMORY", "fatal CONTACT_SUPPORT"},
		{"pcie", 0x1, 10, 3, "GpuPcieWatch DCGM_FR_PCI_REPLAY_RATE", "warning CONTACT_SUPPORT"},
		{"thermal", 0x80, 10, 10, "GpuThermalWatch DCGM_FR_CLOCKS_EVENT_THERMAL", "warning NONE"},
		{"power-viol", 0x100, 10, 12, "GpuPowerWatch DCGM_FR_CLOCKS_EVENT_POWER", "warning NONE"},
		{"power blank", 0x100, 10, 11, "GpuPowerWatch DCGM_FR_POWER_UNREADABLE", "warning RESTART_VM"},
		{"nvlink-crc", 0x2, 20, 70, "GpuNvlinkWatch DCGM_FR_NVLINK_CRC_ERROR_THRESHOLD", "fatal CONTACT_SUPPORT"},
		{"nvlink-replay", 0x2, 20, 71, "GpuNvlinkWatch DCGM_FR_NVLINK_ERROR_CRITICAL", "fatal CONTACT_SUPPORT"},
		{"nvlink-down", 0x2, 20, 14, "GpuNvlinkWatch DCGM_FR_NVLINK_DOWN", "fatal RESTART_VM"},
		{"fabric", 0x2, 20, 33, "GpuNvlinkWatch DCGM_FR_FIELD_VIOLATION", "fatal RESTART_VM"},
		{"effective ber", 0x2, 20, 119, "GpuNvlinkWatch DCGM_FR_NVLINK_EFFECTIVE_BER_THRESHOLD", "fatal CONTACT_SUPPORT"},
		{"imex", 0x2, 20, 122, "GpuNvlinkWatch DCGM_FR_IMEX_UNHEALTHY", "fatal CONTACT_SUPPORT"},
		{"inforom", 0x40, 10, 9, "GpuInforomWatch DCGM_FR_CORRUPT_INFOROM", "warning COMPONENT_RESET"},
		{"recovery reset", 0x200, 20, 125, "GpuDriverWatch DCGM_FR_GPU_RECOVERY_RESET", "fatal COMPONENT_RESET"},
		{"recovery reboot", 0x200, 20, 126, "GpuDriverWatch DCGM_FR_GPU_RECOVERY_REBOOT", "fatal RESTART_BM"},
		{"recovery drain p2p", 0x200, 10, 127, "GpuDriverWatch DCGM_FR_GPU_RECOVERY_DRAIN_P2P", "warning CONTACT_SUPPORT"},
		{"recovery drain", 0x200, 20, 128, "GpuDriverWatch DCGM_FR_GPU_RECOVERY_DRAIN_RESET", "fatal COMPONENT_RESET"},
		{"nobody's", 0x4, 20, 4321, "GpuPmuWatch DCGM_FR_UNKNOWN", "fatal CONTACT_SUPPORT"},
	} {
		t.Run(c.fault, func(t *testing.T) {
			n.t = t
			n.engine.Incident(reading.Incident{System: c.system, Health: c.health, Code: c.code, Entity: gpu(1), Text: "GPU 0 is broken"})
			n.expect(c.want + " " + gpu1 + " " + c.rest + " PROCESS")
			n.engine.Clear(0)
			n.expect(c.want + " " + gpu1 + " healthy NONE PROCESS")
		})
	}
	n.t = t
}

// TestAnIncidentStaysAsLongAsItIsShown: it is shown in each look, and reported once.
func TestAnIncidentStaysAsLongAsItIsShown(t *testing.T) {
	n := newNode(t, 2)
	n.start()
	n.engine.Incident(reading.Incident{System: 0x10, Health: reading.Fail, Code: 4, Entity: gpu(1)})
	n.expect("GpuMemWatch DCGM_FR_VOLATILE_DBE_DETECTED " + gpu1 + " fatal COMPONENT_RESET PROCESS")
	n.expectIdle(10)
}

// TestLatchedXIDIsReportedOnce: It is shown until the host engine is started
// again, also to a monitor that is.
func TestLatchedXIDIsReportedOnce(t *testing.T) {
	n := newNode(t, 2)
	n.unreachableAfter = "1h"
	n.start()
	n.engine.XID(1, 79)
	want := map[string]bool{
		"GpuXidWatch 79 " + gpu1 + " fatal RESTART_BM PERSIST_ONLY":                true,
		"GpuAllWatch DCGM_FR_FALLEN_OFF_BUS " + gpu1 + " fatal RESTART_BM PROCESS": true,
	}
	for range 2 {
		got := eventLine(n.next("the XID"))
		if !want[got] {
			t.Errorf("event %s", got)
		}
		delete(want, got)
	}
	n.expectIdle(5)
	n.kill()
	n.start()
	n.expectIdle(5)
	sets := n.engine.Calls("HealthSet")
	n.engine.Start()
	n.reconnected(sets)
	n.kill()
	n.writeFile("boot_id", "boot-2")
	n.engine.Reboot()
	n.start()
	n.expectAll("GpuXidWatch 79 "+gpu1+" healthy NONE PERSIST_ONLY", "GpuAllWatch DCGM_FR_FALLEN_OFF_BUS "+gpu1+" healthy NONE PROCESS")
}

// TestAnEngineThatIsStartedAgainEndsNothing: it forgets what it made of XIDs, whose numbers
// it reads in the kernel's records again. Nothing was repaired, so nothing ends, and nothing
// is reported twice; after a reset of the GPU it ends.
func TestAnEngineThatIsStartedAgainEndsNothing(t *testing.T) {
	n := newNode(t, 2)
	n.unreachableAfter = "1h"
	n.start()
	want := map[string]bool{}
	for _, x := range []struct {
		number   int64
		reported string
	}{
		{95, "GpuAllWatch DCGM_FR_UNCONTAINED_ERROR " + gpu1 + " fatal RESTART_VM PROCESS"},
		{94, "GpuAllWatch DCGM_FR_CONTAINED_ERROR " + gpu1 + " warning NONE PROCESS"},
		{64, "GpuMemWatch DCGM_FR_ROW_REMAP_FAILURE " + gpu1 + " fatal CONTACT_SUPPORT PROCESS"},
		{63, "GpuMemWatch DCGM_FR_PENDING_PAGE_RETIREMENTS " + gpu1 + " warning NONE PROCESS"},
		{60, "GpuThermalWatch DCGM_FR_CLOCKS_EVENT_THERMAL " + gpu1 + " warning NONE PROCESS"},
		{57, "GpuPowerWatch DCGM_FR_CLOCKS_EVENT_POWER " + gpu1 + " warning NONE PROCESS"},
	} {
		n.engine.XID(1, x.number)
		got := map[string]bool{}
		for range 2 {
			e := n.next(x.reported)
			got[eventLine(e)] = true
			want[e.CheckName+" "+e.ErrorCode[0]] = e.CheckName != "GpuXidWatch"
		}
		if !got[x.reported] {
			t.Errorf("XID %d told %v, want %s", x.number, got, x.reported)
		}
	}
	for range 2 {
		sets := n.engine.Calls("HealthSet")
		n.engine.Start()
		n.reconnected(sets)
	}
	const recoveryAction = 1523
	n.engine.Field(1, recoveryAction, reading.RecoveryReset)
	n.expectIdle(10)
	n.engine.Field(1, recoveryAction, reading.RecoveryNone)
	for range 6 {
		e := n.next("the end after a reset")
		if what := e.CheckName + " " + e.ErrorCode[0]; !e.IsHealthy || !want[what] {
			t.Errorf("told %s", eventLine(e))
		}
		delete(want, e.CheckName+" "+e.ErrorCode[0])
	}
}

// TestUnwatchedIsNotHealthy: Without health watches everything passes.
func TestUnwatchedIsNotHealthy(t *testing.T) {
	n := newNode(t, 2)
	n.start()
	n.engine.Incident(reading.Incident{System: 0x10, Health: reading.Fail, Code: 4, Entity: gpu(1)})
	n.expect("GpuMemWatch DCGM_FR_VOLATILE_DBE_DETECTED " + gpu1 + " fatal COMPONENT_RESET PROCESS")
	sets := n.engine.Calls("HealthSet")
	n.engine.Unwatch(true)
	n.expect("GpuDcgmConnectivityFailure DCGM_CONNECTIVITY_ERROR [] fatal CONTACT_SUPPORT PROCESS")
	if n.engine.Calls("HealthSet") == sets {
		t.Error("nothing was watched anew")
	}
	n.engine.Unwatch(false)
	n.expect("GpuDcgmConnectivityFailure DCGM_CONNECTIVITY_ERROR [] healthy NONE PROCESS")
	n.expectIdle(10)
	n.engine.Clear(0)
	n.expect("GpuMemWatch DCGM_FR_VOLATILE_DBE_DETECTED " + gpu1 + " healthy NONE PROCESS")
}

// TestASwitchThatIsNotWatchedIsNotHealthy: The module of the NVSwitches is not up when
// the monitor connects, and comes later.
func TestASwitchThatIsNotWatchedIsNotHealthy(t *testing.T) {
	const fault = "GpuNvswitchFatalWatch DCGM_FR_NVSWITCH_FATAL_ERROR [NVSWITCH=3] "
	n := newNode(t, 2)
	n.engine.Switches(1, 3)
	n.start()
	n.engine.Value(nvswitch(3), fatalSXID, 20034, time.Time{})
	n.engine.Incident(fatalOf(3))
	n.expect(fault + "fatal CONTACT_SUPPORT PROCESS")
	n.kill()
	n.engine.Switches()
	n.start()
	n.expectIdle(10)
	n.engine.Switches(1, 3)
	n.expectIdle(10)
	n.engine.Value(nvswitch(3), fatalSXID, 0, time.Time{})
	n.expect(fault + "healthy NONE PROCESS")
}

// TestTextsAreNotBelieved: The text names another GPU each time.
func TestTextsAreNotBelieved(t *testing.T) {
	n := newNode(t, 2)
	n.start()
	n.engine.Incident(reading.Incident{System: 0x10, Health: reading.Fail, Code: 80, Entity: gpu(1)})
	n.expect("GpuMemWatch DCGM_FR_ROW_REMAP_FAILURE " + gpu1 + " fatal CONTACT_SUPPORT PROCESS")
	n.expectIdle(10)
}

// TestLostGPUIsReportedAndNeverHealthy: It has no incidents and no name.
func TestLostGPUIsReportedAndNeverHealthy(t *testing.T) {
	n := newNode(t, 2)
	n.start()
	n.engine.Incident(reading.Incident{System: 0x10, Health: reading.Fail, Code: 4, Entity: gpu(1)})
	n.expect("GpuMemWatch DCGM_FR_VOLATILE_DBE_DETECTED " + gpu1 + " fatal COMPONENT_RESET PROCESS")
	n.engine.Status(1, reading.Lost)
	n.engine.Clear(0)
	n.expect("GpuLostWatch GPU_LOST " + gpu1 + " fatal RESTART_BM PROCESS")
	n.expectIdle(10)
	n.engine.Status(1, reading.OK)
	want := map[string]bool{
		"GpuLostWatch GPU_LOST " + gpu1 + " healthy NONE PROCESS":                     true,
		"GpuMemWatch DCGM_FR_VOLATILE_DBE_DETECTED " + gpu1 + " healthy NONE PROCESS": true,
	}
	for range 2 {
		got := eventLine(n.next("a recovery"))
		if !want[got] {
			t.Errorf("event %s", got)
		}
		delete(want, got)
	}
}

// TestXIDsOfTheKernelComeLate: No incident shows them, their
// samples are timestamped earlier than they are appended, and GPUs without any have a
// placeholder; two within five seconds are two.
func TestXIDsOfTheKernelComeLate(t *testing.T) {
	n := newNode(t, 2)
	n.start()
	n.expectIdle(3)
	n.engine.KernelXID(1, 119, time.Second)
	n.engine.KernelXID(1, 120, time.Second)
	n.engine.KernelXID(1, 31, 0)
	n.engine.KernelXID(1, 13, 0)
	codes := map[string]bool{}
	for range 4 {
		e := n.next("an XID")
		codes[e.ErrorCode[0]] = true
	}
	for _, code := range []string{"119", "120", "31", "13"} {
		if !codes[code] {
			t.Errorf("XID %s was not told: %v", code, codes)
		}
	}
	n.expectIdle(10)
}

// TestBlankValueIsIgnored: A value that cannot be read has status 0, and
// a number that means so.
func TestBlankValueIsIgnored(t *testing.T) {
	const margin, pending, blank = 153, 396, 0x7ffffffffffffff0
	n := newNode(t, 2)
	n.writeFile("gpu_metadata.json", `{"gpus": [{"gpu_id": 1, "uuid": "GPU-00000001", "pci_address": "0000:11:00.0", "slowdown_tlimit_c": 3}]}`)
	const described = "[GPU=1 PCI=0000:11:00.0 GPU_UUID=GPU-00000001]"
	n.engine.Field(1, margin, 30)
	n.start()
	for field, c := range map[int]struct {
		bad, good                int64
		what, reported, strategy string
	}{
		margin:  {2, 3, "GpuThermalMarginWatch GPU_TEMP_HW_SLOWDOWN_VIOLATION ", " fatal CONTACT_SUPPORT ", "PERSIST_ONLY"},
		pending: {1, 0, "GpuMemWatch DCGM_FR_PENDING_ROW_REMAP ", " warning COMPONENT_RESET ", "PROCESS"},
	} {
		n.engine.Field(1, field, c.bad)
		n.expect(c.what + described + c.reported + c.strategy)
		n.engine.Field(1, field, blank)
		n.expectIdle(10)
		n.engine.Field(1, field, c.good)
		n.expect(c.what + described + " healthy NONE " + c.strategy)
	}
}

// TestTheEngineIsStartedAgain: While nobody answers nothing is
// healthy, and a new connection watches again.
func TestTheEngineIsStartedAgain(t *testing.T) {
	n := newNode(t, 2)
	n.start()
	n.engine.Incident(reading.Incident{System: 0x10, Health: reading.Fail, Code: 4, Entity: gpu(1)})
	n.expect("GpuMemWatch DCGM_FR_VOLATILE_DBE_DETECTED " + gpu1 + " fatal COMPONENT_RESET PROCESS")
	n.engine.Stop()
	n.expect("GpuDcgmConnectivityFailure DCGM_CONNECTIVITY_ERROR [] fatal CONTACT_SUPPORT PROCESS")
	n.engine.Start()
	n.expect("GpuDcgmConnectivityFailure DCGM_CONNECTIVITY_ERROR [] healthy NONE PROCESS")
	n.expectIdle(5)
	n.engine.Clear(0)
	n.expect("GpuMemWatch DCGM_FR_VOLATILE_DBE_DETECTED " + gpu1 + " healthy NONE PROCESS")
}

// TestACallThatHangsIsReplaced: the call is reported, and its end.
func TestACallThatHangsIsReplaced(t *testing.T) {
	n := newNode(t, 2, "--dcgm-mode=embedded", "--call-deadline=2s")
	n.start()
	n.expectIdle(3)
	n.engine.Hang("HealthCheck")
	n.expect("GpuDcgmUnresponsive DCGM_PROBE_HANG [] fatal RESTART_BM PERSIST_ONLY")
	n.engine.Resume()
	n.expect("GpuDcgmUnresponsive DCGM_PROBE_HANG [] healthy NONE PERSIST_ONLY")
}

// TestADeadConnectionIsNoReading: Init does not report a login that failed.
func TestADeadConnectionIsNoReading(t *testing.T) {
	n := newNode(t, 2)
	n.engine.DeadInit(true)
	n.start()
	n.expect("GpuDcgmConnectivityFailure DCGM_CONNECTIVITY_ERROR [] fatal CONTACT_SUPPORT PROCESS")
	n.engine.DeadInit(false)
	n.expect("GpuDcgmConnectivityFailure DCGM_CONNECTIVITY_ERROR [] healthy NONE PROCESS")
}

// TestALibraryThatEndsItsProcess: The monitor outlives it.
func TestALibraryThatEndsItsProcess(t *testing.T) {
	n := newNode(t, 2)
	n.start()
	n.expectIdle(3)
	n.engine.Crash("HealthCheck")
	n.expect("GpuDcgmConnectivityFailure DCGM_CONNECTIVITY_ERROR [] fatal CONTACT_SUPPORT PROCESS")
	n.engine.Crash("")
	n.expect("GpuDcgmConnectivityFailure DCGM_CONNECTIVITY_ERROR [] healthy NONE PROCESS")
}
