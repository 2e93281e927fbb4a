package xid

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/internal/mutate"
	"github.com/nvidia/nvsentinel/health-monitors/location"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, line string
		want       Fault
	}{
		{"fallen off the bus", "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
			Fault{Code: 79, Number: "79", PCI: "0000:3b:00"}},
		{"upper case, long domain, function", "NVRM: Xid (PCI:00000000:3B:00.0): 48, pid=123",
			Fault{Code: 48, Number: "48", PCI: "0000:3b:00"}},
		{"domain of five digits", "NVRM: Xid (PCI:00010001:00:1f): 31", Fault{Code: 31, Number: "31", PCI: "10001:00:1f"}},
		{"old driver without PCI", "NVRM: Xid (0000:03:00): 14, Channel 00000001", Fault{Code: 14, Number: "14", PCI: "0000:03:00"}},
		{"address without domain", "NVRM: Xid (PCI:03:00): 14", Fault{Code: 14, Number: "14", PCI: "0000:03:00"}},
		{"leading zeros", "NVRM: Xid (PCI:0000:03:00): 0079, x", Fault{Code: 79, Number: "79", PCI: "0000:03:00"}},
		{"zero", "NVRM: Xid (PCI:0000:03:00): 0", Fault{Code: 0, Number: "0", PCI: "0000:03:00"}},
		{"number of no catalogue", "NVRM: Xid (PCI:0000:03:00): 99999999999999999999999999999999999999",
			Fault{Code: 0, Number: strings.Repeat("9", 32), PCI: "0000:03:00"}},
		{"XID 13 with its place", "NVRM: Xid (PCI:0000:05:00): 13, pid=1, name=a, Graphics SM Warp Exception on (GPC 2, TPC 3, SM 1): Out Of Range Address",
			Fault{Code: 13, Number: "13", PCI: "0000:05:00", GPC: "2", TPC: "3", SM: "1"}},
		{"XID 13 without a place", "NVRM: Xid (PCI:0000:05:00): 13, Graphics Exception", Fault{Code: 13, Number: "13", PCI: "0000:05:00"}},
		{"XID 74", "NVRM: Xid (PCI:0000:05:00): 74, pid=1, NVLink: fatal error detected on link 4(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
			Fault{Code: 74, Number: "74", PCI: "0000:05:00", Link: "4", LinkRegisters: []uint32{0, 0, 0x10000, 0, 0, 0, 0}}},
		{"partitioned GPU", "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No",
			Fault{Code: 94, Number: "94", PCI: "0000:01:00", GPUInstance: "5"}},
		{"compute instance", "NVRM: Xid (PCI:0000:3b:00.0 GPU-I:10 GPU-CI:00): 63, Row Remapper", Fault{Code: 63, Number: "63", PCI: "0000:3b:00", GPUInstance: "10", ComputeInstance: "0"}},
		{"hexadecimal", "NVRM: Xid (PCI:0000:03:00): 0x4f, x", Fault{Code: 79, Number: "79", PCI: "0000:03:00"}},
		{"XID 74 with another form of its link", "NVRM: Xid (PCI:0000:05:00): 74, pid=1, NVLink: non-fatal error detected on Link 2",
			Fault{Code: 74, Number: "74", PCI: "0000:05:00", Link: "2"}},
		{"XID 137", "NVRM: Xid (PCI:0000:18:00): 137, pid=1, name=a, NVLink remote fault on link 11", Fault{Code: 137, Number: "137", PCI: "0000:18:00", Link: "11"}},
		{"XID 71", "NVRM: Xid (PCI:0000:18:00): 71, NVLink 06 x", Fault{Code: 71, Number: "71", PCI: "0000:18:00", Link: "6"}},
		{"XID 145 without its registers", "NVRM: Xid (PCI:0000:18:00): 145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 011 (redacted)",
			Fault{Code: 145, Number: "145", PCI: "0000:18:00", Link: "11"}},
		{"link of another code", "NVRM: Xid (PCI:0000:05:00): 45, error on link 4(0x0", Fault{Code: 45, Number: "45", PCI: "0000:05:00"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := Parse(c.line)
			c.want.Text = c.line[strings.Index(c.line, "NVRM"):]
			if diff := cmp.Diff(c.want, got); !ok || diff != "" {
				t.Errorf("ok %t, fault (-want +got):\n%s", ok, diff)
			}
		})
	}
}

func TestLinesThatReportNoXID(t *testing.T) {
	for _, line := range []string{
		"", "NVRM: Xid", "NVRM: Xid (", "NVRM: Xid (PCI:0000:3b:00)", "NVRM: Xid (PCI:0000:3b:00): ", "NVRM: Xid (PCI:0000:3b:00): x79",
		"NVRM: Xid (PCI:zz): 79", "NVRM: Xid (PCI:0000:3b:00): 0x", "NVRM: Xid (PCI:0000:3b:00): 0xzz", "NVRM: Xid (PCI:0000:3b:00): 0x123456789",
		"NVRM: Xid (PCI:0000:3b:00 GPU-I:): 79", "NVRM: Xid (PCI:0000:3b:00 GPU-CI:x): 79", "NVRM: Xid (PCI:0000:3b:00GPU-I:1): 79", "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
		"NVRM: GPU at PCI:0000:3b:00: GPU-b850f46d-d5ea-c752-ddf3-c4453e44d3f7", "NVRM: xid (PCI:0000:3b:00): 79",
		"NVRM: Xid (PCI::::): 14", "NVRM: Xid (1): 79", "kernel[7]: segfault at 0 ip 00005615b110f176 error 6 in NVRM: Xid (PCI:0000:3b:00): 79, x",
		"NVRM: Xid (PCI:[7]: segfault at 0 ip 00005615b110f176 error 6 in NVRM: Xid (PCI:0000:3b:00): 79, x",
		"NVRM: API mismatch: the client 'x' (pid 7)\nNVRM: has the version NVRM: Xid (PCI:0000:3b:00): 79, but this kernel module has",
	} {
		if f, ok := Parse(line); ok {
			t.Errorf("%q was read as %+v", line, f)
		}
	}
}

// TestTornLinesHoldSeveralXIDs: each has its own text, so that the words of one do not
// count for the other.
func TestTornLinesHoldSeveralXIDs(t *testing.T) {
	const first, second = "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to ", "NVRM: Xid (PCI:0000:5e:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)"
	got := ParseAll(first + second)
	want := []Fault{{Code: 154, Number: "154", PCI: "0000:3b:00", Text: first}, {Code: 154, Number: "154", PCI: "0000:5e:00", Text: second}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	if got := ParseAll("NVRM: Xid (PCI:0000:3bNVRM: Xid (PCI:0000:5e:00): 79"); len(got) != 1 || got[0].PCI != "0000:5e:00" {
		t.Errorf("after a torn head: %+v", got)
	}
	if got := ParseAll(strings.Repeat("NVRM: Xid (PCI:0000:3b:00): 79, ", 9)); len(got) != maxPerLine {
		t.Errorf("%d XIDs of one line", len(got))
	}
}

func TestParseOwner(t *testing.T) {
	const uuid = "GPU-b850f46d-d5ea-c752-ddf3-c4453e44d3f7"
	for line, want := range map[string][2]string{
		"NVRM: GPU at PCI:0000:3B:00: " + uuid:        {"0000:3b:00", uuid},
		"NVRM: GPU at 0000:3b:00.0: " + uuid + ", ok": {"0000:3b:00", uuid},
		"NVRM: GPU at PCI:0000:3b:00: GPU-b850":       {},
		"NVRM: GPU at PCI:0000:3b:00: " + uuid + "f":  {},
		"[1.2] NVRM: GPU at PCI:0000:3b:00: " + uuid:  {},
		"NVRM: Xid (PCI:0000:3b:00): 79":              {},
	} {
		pci, id, ok := ParseOwner(line)
		if got := [2]string{pci, id}; got != want || ok != (want[0] != "") {
			t.Errorf("%q: %v, %t; want %v", line, got, ok, want)
		}
	}
}

func TestEventNamesEverythingThatIsKnown(t *testing.T) {
	f, _ := Parse("NVRM: Xid (PCI:0000:05:00): 13, Exception on (GPC 2, TPC 3, SM 1): x")
	e := record.FromProto(Builtin.Event(f, location.Device{UUID: "GPU-1", Index: "0", Listed: true, Chassis: "C9"},
		location.Sighting{Node: "n", Boot: "b", Strategy: record.PersistOnly}, "raw line"))
	want := record.Event{
		Version: 1, Agent: "syslog-health-monitor", ComponentClass: "GPU", CheckName: "SysLogsXIDError", Message: "raw line",
		RecommendedAction: record.ActionNone, ErrorCode: []string{"13"}, NodeName: "n", ProcessingStrategy: record.PersistOnly,
		EntitiesImpacted: []record.Entity{
			{EntityType: "PCI", EntityValue: "0000:05:00"}, {EntityType: "GPU_UUID", EntityValue: "GPU-1"}, {EntityType: "GPU", EntityValue: "0"},
			{EntityType: "GPC", EntityValue: "2"}, {EntityType: "TPC", EntityValue: "3"}, {EntityType: "SM", EntityValue: "1"},
		},
		Metadata: map[string]string{"bootID": "b", "chassis_serial": "C9"},
	}
	want.GeneratedTimestamp = e.GeneratedTimestamp
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
}

func TestResetNeedsAListedGPU(t *testing.T) {
	f, _ := Parse("NVRM: Xid (PCI:0000:05:00): 95, x")
	for name, c := range map[string]struct {
		device location.Device
		want   record.Action
	}{
		"listed":                 {location.Device{UUID: "GPU-1", Index: "0", Listed: true}, record.ActionComponentReset},
		"only the driver's word": {location.Device{UUID: "GPU-1"}, record.ActionRestartVM},
		"unknown":                {location.Device{}, record.ActionRestartVM},
	} {
		e := record.FromProto(Builtin.Event(f, c.device, location.Sighting{}, ""))
		if e.RecommendedAction != c.want || !e.IsFatal {
			t.Errorf("%s: %s, fatal %t; want %s", name, e.RecommendedAction, e.IsFatal, c.want)
		}
	}
}

func TestUnusualPoliciesAreNamed(t *testing.T) {
	for code, want := range map[string]string{
		"79": "", "54": "unmapped-bucket", "154": "undecided", "149": "needs-decode",
		"162": "recovery-notice", "170": "blank-bucket", "500": "unknown-code",
	} {
		f, _ := Parse("NVRM: Xid (PCI:0000:05:00): " + code)
		e := Builtin.Event(f, location.Device{}, location.Sighting{}, "")
		if got := e.Metadata[MetadataPolicy]; got != want || e.ErrorCode[0] != code {
			t.Errorf("xid %s: policy %q, want %q; codes %v", code, got, want, e.ErrorCode)
		}
	}
}

var lineSeeds = []string{
	"NVRM: Xid (PCI:0000:3b:00): 79, pid=1", "NVRM: Xid (PCI:0000:05:00): 154, GPU recovery action changed from 0x1 (PF FLR) to 0x0 (None)", "\xff\x00NVRM: Xid (PCI:::): 13, (GPC 1, TPC",
	"NVRM: Xid (PCI:0000:81:00): 74, pid=1, NVLink: fatal error detected on link 2(0x10000, 0x0, 0xFfffFfff, 0x0, 0x1, 0x0, 0x0)",
	"NVRM: GPU at PCI:0000:3b:00: GPU-b850f46d-d5ea-c752-ddf3-c4453e44d3f7", "NVRM: Xid (PCI:a): 074 link 9999999999(",
	"NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:00): 0x5e, NVRM: Xid (PCI:0000:01:00): 137, Link 3",
	"NVRM: Xid (PCI:0000:18:00): 149, pid=1, name=x, NETIR_LINK_EVT Fatal XC0 i0 Link 05 (0x004505c6 0x00000000 0x00000000)",
	"NVRM: Xid (PCI:0000:18:00): 150, MSE Degraded Fatal XC0 i0 Link -1 (0x00000000 0xFFFFFFFF)",
}

// checkLine feeds foreign bytes through everything that a line goes through: the
// event must always be one that the wire can carry.
func checkLine(t *testing.T, raw []byte) {
	text := kernellog.Clean(raw)
	if pci, uuid, ok := ParseOwner(text); ok && (pci == "" || len(uuid) != 40) {
		t.Errorf("owner %q %q", pci, uuid)
	}
	for _, fault := range ParseAll(text) {
		checkFault(t, text, fault)
	}
}

func checkFault(t *testing.T, text string, fault Fault) {
	t.Helper()
	for _, driver := range []string{"", "570.1", "580", "x"} {
		d := location.Device{Driver: driver}
		e := Builtin.Event(fault, d, location.Sighting{Node: "n", Boot: "b", Strategy: record.Process}, kernellog.Cut(text, 100))
		if _, err := proto.Marshal(e); err != nil {
			t.Errorf("event cannot be encoded: %v", err)
		}
		if len(e.Message) > 100 || !utf8.ValidString(e.Message) || fault.Number == "" || fault.PCI == "" {
			t.Errorf("event %v of fault %+v", e, fault)
		}
		checkRegisters(t, fault, e.GetMetadata())
		if _, known := Builtin[fault.Code]; !known && e.IsFatal {
			t.Errorf("unknown code %s is fatal", fault.Number)
		}
	}
}

func TestDamagedLines(t *testing.T) { mutate.Each(t, 3000, lineSeeds, checkLine) }

func FuzzLine(f *testing.F) {
	for _, seed := range lineSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(checkLine)
}

// TestRecoveries: they are healthy, and name the codes that they clear.
func TestRecoveries(t *testing.T) {
	d := location.Device{UUID: "GPU-1"}
	for name, c := range map[string]struct {
		event *protos.HealthEvent
		codes []string
	}{
		"withdrawal":   {Withdrawal(d, location.Sighting{}, "line"), []string{"154"}},
		"cancellation": {Cancellation(d, location.Sighting{}, "43", []string{"13", "31"}), []string{"13", "31"}},
	} {
		if e := record.FromProto(c.event); !e.IsHealthy || e.IsFatal || !slices.Equal(e.ErrorCode, c.codes) {
			t.Errorf("%s: healthy %t, fatal %t, codes %v", name, e.IsHealthy, e.IsFatal, e.ErrorCode)
		}
	}
}

func TestResetCures(t *testing.T) {
	for action, want := range map[record.Action]bool{
		record.ActionNone: true, record.ActionComponentReset: true, record.ActionRestartVM: false, record.ActionContactSupport: false,
	} {
		if got := (Evaluation{Action: action}).ResetCures(); got != want {
			t.Errorf("a reset cures what asks for %s: %t", action, got)
		}
	}
}

func TestDriverBranch(t *testing.T) {
	for version, want := range map[string]int{"575.51.03": 575, "1": 1, "0.5": 0, "-3.1": 0, "": 0, "x.1": 0} {
		if n, ok := driverBranch(version); ok != (want > 0) || ok && n != want {
			t.Errorf("driver %q: %d %t", version, n, ok)
		}
	}
}
