package xid

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/location"
)

const xid74 = "NVRM: Xid (PCI:0000:81:00): 74, pid=1234, name=python, NVLink: fatal error detected on "

func TestRegistersOfAnXID74AreRead(t *testing.T) {
	for text, want := range map[string][]uint32{
		"link 2(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)":             {0x10000, 0, 0, 0, 0, 0, 0},
		"link 2(0x0,0x1,0xa,0xFF,0xffffffff,0x00000010,0x5)":        {0, 1, 10, 255, 0xffffffff, 16, 5},
		"link 2(0x0,  0x1, 0x2, 0x3, 0x4, 0x5, 0x6) and more":       {0, 1, 2, 3, 4, 5, 6},
		"link 2(0x0000000000000010, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)":  {16, 0, 0, 0, 0, 0, 0},
		"link 2(0x100000000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)":         nil, // 33 bits
		"link 2(0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x1ffffffffffffffff)": nil,
		"link 2(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0)":                  nil, // six
		"link 2(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)":        nil, // eight
		"link 2(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x1":              nil, // cut: perhaps 0x10000
		"link 2(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, ":                 nil,
		"link 2(": nil,
		"link 2(0x1000g, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)":           nil,
		"link 2(0x, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)":                nil,
		"link 2(65536, 0, 0, 0, 0, 0, 0)":                         nil,
		"link 2(-0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)":              nil,
		"link 2(0x1_0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)":             nil,
		"link 2(0x10000 0x0 0x0 0x0 0x0 0x0 0x0)":                 nil,
		"link 2() of another (0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)": nil,
	} {
		f, ok := Parse(xid74 + text)
		if diff := cmp.Diff(want, f.LinkRegisters); !ok || f.Code != 74 || f.Link != "2" || diff != "" {
			t.Errorf("%q: ok %t, code %d, link %q; registers (-want +got):\n%s", text, ok, f.Code, f.Link, diff)
		}
	}
	for _, text := range []string{"a link", "link x(0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", "links 2(0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"} {
		if f, ok := Parse(xid74 + text); !ok || f.Code != 74 || f.Link != "" || f.LinkRegisters != nil {
			t.Errorf("%q: ok %t, fault %+v", text, ok, f)
		}
	}
}

func TestIgnorableBitsOfAnXID74AreNoFault(t *testing.T) {
	fatal := Evaluation{record.ActionContactSupport, true, false, UnmappedBucket}
	none := Evaluation{record.ActionNone, false, true, IgnorableBits}
	for text, want := range map[string]Evaluation{
		"link 2(0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)":        none,
		"link 2(0x40800001, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)": none,
		"link 2(0x800000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)":   none,
		"link 2(0x3, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)":        fatal,
		"link 2(0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x1)":        fatal,
		"link 2(0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)":        fatal, // no bit is set
		"link 2(0x1, 0x0, 0x0":                             fatal, // cut
	} {
		f, _ := Parse(xid74 + text)
		if got := Builtin.Evaluate(f, ""); got != want {
			t.Errorf("%q: judged %+v, want %+v", text, got, want)
		}
	}
}

// TestRegistersAreMetadata: what an event of an XID 74 is about and what it
// asks for does not depend on its registers.
func TestRegistersAreMetadata(t *testing.T) {
	d := location.Device{UUID: "GPU-1", Index: "0", Listed: true, Chassis: "C9"}
	event := func(text string) record.Event {
		f, _ := Parse(xid74 + text)
		return record.FromProto(Builtin.Event(f, d, location.Sighting{Node: "n", Boot: "b", Strategy: record.Process}, "raw line"))
	}
	whole, cut := event("link 2(0x10000, 0x0, 0x0, 0x0, 0x80000001, 0x0, 0x0)"), event("link 2(0x10000, 0x0")
	zero := strings.Repeat("0", 32)
	want := map[string]string{
		"bootID": "b", "chassis_serial": "C9", "xidPolicy": "unmapped-bucket",
		"REG0": "00000000000000010000000000000000", "REG1": zero, "REG2": zero, "REG3": zero,
		"REG4": "10000000000000000000000000000001", "REG5": zero, "REG6": zero,
	}
	if diff := cmp.Diff(want, whole.Metadata); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	whole.Metadata = cut.Metadata
	if diff := cmp.Diff(cut, whole); diff != "" {
		t.Errorf("with registers it is another event (-without +with):\n%s", diff)
	}
	entities := []record.Entity{
		{EntityType: "PCI", EntityValue: "0000:81:00"}, {EntityType: "GPU_UUID", EntityValue: "GPU-1"}, {EntityType: "GPU", EntityValue: "0"},
		{EntityType: "NVLINK", EntityValue: "2"},
	}
	if diff := cmp.Diff(entities, cut.EntitiesImpacted); diff != "" || !cut.IsFatal || cut.RecommendedAction != record.ActionContactSupport {
		t.Errorf("event %+v; entities (-want +got):\n%s", cut, diff)
	}
}

// checkRegisters: an event has all registers or none, and only those that the
// fault has.
func checkRegisters(t *testing.T, f Fault, metadata map[string]string) {
	t.Helper()
	if n := len(f.LinkRegisters); n != 0 && (n != 7 || f.Code != 74 || f.Link == "") {
		t.Errorf("registers of fault %+v", f)
	}
	for i := range 8 {
		text, ok := metadata[fmt.Sprint(record.MetadataRegister, i)]
		if !ok && i >= len(f.LinkRegisters) {
			continue
		}
		if v, err := strconv.ParseUint(text, 2, 32); err != nil || len(text) != 32 || i >= len(f.LinkRegisters) || uint32(v) != f.LinkRegisters[i] {
			t.Errorf("register %d is %q in the event of fault %+v", i, text, f)
		}
	}
}
