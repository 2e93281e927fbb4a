package xid

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/location"
)

// link5Line is a line with registers, as the driver writes it.
func link5Line(code int, unit string, info, status uint32) string {
	return fmt.Sprintf("NVRM: Xid (PCI:0000:18:00): %d, pid=7, name=x, %s Nonfatal XC0 i0 Link 05 (0x%08x 0x%08x 0x00000000 0x00000000)",
		code, unit, info, status)
}

func TestNVLink5LinesAreRead(t *testing.T) {
	for line, want := range map[string]struct {
		r    *Registers
		link string
	}{
		"NVRM: Xid (PCI:0000:18:00): 149, something of link 4":                                           {nil, "4"},
		link5Line(149, "NETIR_LINK_EVT", 0x004505c6, 3):                                                  {&Registers{"NETIR_LINK_EVT", "Nonfatal", 0x004505c6, 3}, "5"},
		"NVRM: Xid (PCI:0000:18:00): 145, RLW_REMAP Fatal XC1 i0 Link -1 (0x4 0xFFFFFFFF":                {&Registers{"RLW_REMAP", "Fatal", 4, 0xffffffff}, ""},
		link5Line(149, "NETIR_LINK_EVT/NETIR_LINK_DOWN", 0x004505c6, 3):                                  {&Registers{"NETIR_LINK_DOWN", "Nonfatal", 0x004505c6, 3}, "5"},
		"NVRM: Xid (PCI:0000:04:00): 146, TLW_RX/TLW_RX_PIPE0 Nonfatal XC0 i0 Link 00 (0x1 0x1 0x0 0x0)": {&Registers{"TLW_RX_PIPE0", "Nonfatal", 1, 1}, "0"},
		"NVRM: Xid (PCI:0000:18:00): 149, pid=7, name=a/b, NETIR Fatal XC0 i0 Link 00 (0x6 0x0 0x0 0x0)": {&Registers{"NETIR", "Fatal", 6, 0}, "0"},
		"NVRM: Xid (PCI:0000:18:00): 150, MSE Degraded Fatal XC0 i0 Link 17 (0x0 0x0 0x0":                {&Registers{"MSE Degraded", "Fatal", 0, 0}, "17"},
		"NVRM: Xid (PCI:0000:18:00): 144, SAW_MVB Fatal XC0 i0 Link 05 (0x1234567890 0x0":                {nil, "5"},
		"NVRM: Xid (PCI:0000:18:00): 144, something else":                                                {},
	} {
		f, ok := Parse(line)
		if diff := cmp.Diff(want.r, f.NVLink5); !ok || diff != "" || f.Link != want.link {
			t.Errorf("%q: ok %t, link %q, want %q; registers (-want +got):\n%s", line, ok, f.Link, want.link, diff)
		}
	}
}

func TestNVLink5IsEvaluatedByTheTable(t *testing.T) {
	reset := Evaluation{record.ActionComponentReset, true, true, Decoded}
	ignore := Evaluation{record.ActionNone, false, true, Decoded}
	none := Evaluation{record.ActionContactSupport, false, true, NoMatchingRow}
	for _, c := range []struct {
		name         string
		code         int
		unit         string
		info, status uint32
		driver       string
		want         Evaluation
	}{
		{"new layout, reset", 144, "SAW_MVB", 0x1, 0x2, "575.51.03", reset},
		{"new layout, other bits set", 144, "SAW_MVB", 0xfc0fff81, 0x10, "580.1", reset},
		{"new layout, ignore", 144, "SAW_MVB", 0x1, 0x20, "575", ignore},
		{"old layout under a new driver", 144, "SAW_MVB", 0x21, 0x2, "575", none},
		{"old layout, reset", 144, "SAW_MVB", 0x21, 0x2, "570.133.20", reset},
		{"new layout under an old driver", 144, "SAW_MVB", 0x1, 0x2, "570.133.20", none},
		{"driver unknown, old layout", 144, "SAW_MVB", 0x21, 0x2, "", reset},
		{"driver unknown, new layout", 144, "SAW_MVB", 0x1, 0x20, "odd", ignore},
		{"status of no row", 144, "SAW_MVB", 0x1, 0x6, "575", none},
		{"unit of no row", 144, "SAW_XYZ", 0x1, 0x2, "575", none},
		{"unit of another code", 145, "SAW_MVB", 0x1, 0x2, "575", none},
		{"XID 154 decides", 145, "RLW_REMAP", 0x4, 0x8, "575", ignore},
		{"one of two units", 146, "TLW_RX_PIPE1", 0xb, 0x4, "575", reset},
		{"first row of two layouts of one unit", 145, "RLW_RXPIPE", 0x6, 0x4, "575", ignore},
		{"any status", 149, "NETIR_LINK_DOWN", 0x11, 0xdeadbeef, "575", reset},
		{"a link state that is ignored", 149, "NETIR_LINK_EVT", 0x02600011, 7, "575", ignore},
		{"a link state that is not", 149, "NETIR_LINK_EVT", 0x02500011, 7, "575", reset},
		{"a link state of no row", 149, "NETIR_LINK_EVT", 0x03f00011, 7, "575", none},
		{"action 2 of RLW_RXPIPE, old layout", 145, "RLW_RXPIPE", 0x4c2, 0x2, "570", reset},
		{"action 2 of RLW_RXPIPE, new layout", 145, "RLW_RXPIPE", 0x86, 0x4, "575", reset},
		{"status 8 of it", 145, "RLW_RXPIPE", 0x86, 0x8, "575", ignore},
		{"MSE Degraded", 150, "MSE Degraded", 0, 0xFFFFFFFF, "575", reset},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, ok := Parse(link5Line(c.code, c.unit, c.info, c.status))
			if got := Builtin.Evaluate(f, c.driver); !ok || got != c.want {
				t.Errorf("judged %+v, want %+v", got, c.want)
			}
		})
	}
}

// TestWithoutRowDriverActionDecides: a line that calls itself fatal is fatal.
func TestWithoutRowDriverActionDecides(t *testing.T) {
	for severity, fatal := range map[string]bool{"Fatal": true, "Nonfatal": false, "Fatality": false} {
		f, _ := Parse(strings.Replace(link5Line(149, "NETIR_NEW_EVT", 0x11, 0), "Nonfatal", severity, 1))
		if got := Builtin.Evaluate(f, "580"); got != (Evaluation{record.ActionContactSupport, fatal, !fatal, NoMatchingRow}) {
			t.Errorf("%s: judged %+v", severity, got)
		}
	}
}

// TestEveryRowOfTheNVLink5TableIsReached writes the line of every row and status
// under both layouts: the row itself must decide, since no earlier one may hide it.
func TestEveryRowOfTheNVLink5TableIsReached(t *testing.T) {
	if len(nvlink5) != 55 {
		t.Errorf("the table has %d rows, the workbook's sheet 55 pairs of row and bucket", len(nvlink5))
	}
	for i, row := range nvlink5 {
		for layout, p := range []pattern{row.v1, row.v2} {
			for _, unit := range row.units {
				status := append(slices.Clone(row.status), 0x4)
				if len(row.status) > 0 {
					status = row.status
				}
				for _, s := range status {
					got, ok := find(row.code, Registers{Unit: unit, Info: p.value, Status: s}, layout)
					if !ok || got.bucket != row.bucket {
						t.Errorf("row %d, layout %d, unit %s, status %#x: found %t, bucket %s, want %s", i, layout, unit, s, ok, got.bucket, row.bucket)
					}
				}
			}
		}
	}
}

// TestLayoutsThatDisagreeAreNoVerdict plants such a pair; the real table has none.
func TestLayoutsThatDisagreeAreNoVerdict(t *testing.T) {
	table := nvlink5
	t.Cleanup(func() { nvlink5 = table })
	nvlink5 = []row5{
		{code: 144, units: []string{"U"}, v1: pattern{1, 1}, v2: pattern{1, 0}, bucket: "RESET_GPU"},
		{code: 144, units: []string{"U"}, v1: pattern{1, 0}, v2: pattern{1, 1}, bucket: "IGNORE"},
	}
	f, _ := Parse(link5Line(144, "U", 1, 0))
	if got := Builtin.Evaluate(f, ""); got != (Evaluation{record.ActionContactSupport, false, true, DriverUnknown}) {
		t.Errorf("judged %+v", got)
	}
	if got := Builtin.Evaluate(f, "570"); got.Action != record.ActionComponentReset {
		t.Errorf("judged %+v", got)
	}
}

func TestNVLink5EventNamesUnitAndLink(t *testing.T) {
	f, _ := Parse(link5Line(149, "NETIR_LINK_EVT", 0x11, 0))
	e := record.FromProto(Builtin.Event(f, location.Device{UUID: "GPU-1", Index: "3", Listed: true, Driver: "580"}, location.Sighting{}, "raw"))
	want := []record.Entity{
		{EntityType: "PCI", EntityValue: "0000:18:00"}, {EntityType: "GPU_UUID", EntityValue: "GPU-1"},
		{EntityType: "GPU", EntityValue: "3"}, {EntityType: "NVLINK", EntityValue: "5"},
	}
	if diff := cmp.Diff(want, e.EntitiesImpacted); diff != "" {
		t.Errorf("entities (-want +got):\n%s", diff)
	}
	if e.ErrorCode[0] != "149.NETIR_LINK_EVT" || e.RecommendedAction != record.ActionComponentReset || e.Metadata[MetadataPolicy] != "decoded" {
		t.Errorf("event %+v", e)
	}
}
