package kernellog

import (
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/health-monitors/internal/mutate"
)

func TestParseRecord(t *testing.T) {
	for _, c := range []struct {
		name, raw string
		want      Record
	}{
		{"plain", "5,0,0,-;Linux version 6.18.44 (gcc) #1 SMP\n", Record{Level: 5, Text: "Linux version 6.18.44 (gcc) #1 SMP"}},
		{"continuation lines", "6,339,5140900,-;NET: Registered PF_INET\n SUBSYSTEM=acpi\n DEVICE=+acpi:PNP0A03:00\n",
			Record{Level: 6, Seq: 339, Usec: 5140900, Text: "NET: Registered PF_INET"}},
		{"more fields", "3,1000,77,-,caller=T42,more;NVRM: Xid (PCI:0000:3b:00): 79, pid=1\n",
			Record{Level: 3, Seq: 1000, Usec: 77, Text: "NVRM: Xid (PCI:0000:3b:00): 79, pid=1"}},
		{"user space", "12,5,6,-;hello; again\n", Record{Facility: 1, Level: 4, Seq: 5, Usec: 6, Text: "hello; again"}},
		{"escapes", `4,5,6,c;tab\x09 backslash\x5c \xe2\x82\xac \xff \x4` + "\n", Record{Level: 4, Seq: 5, Usec: 6, Text: "tab\t backslash\\ \u20ac \uFFFD \\x4"}},
		{"no newline", "4,5,6,-;x", Record{Level: 4, Seq: 5, Usec: 6, Text: "x"}},
		{"empty text", "4,5,6,-;\n", Record{Level: 4, Seq: 5, Usec: 6}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseRecord([]byte(c.raw))
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("error %v, record (-want +got):\n%s", err, diff)
			}
		})
	}
	for _, raw := range []string{"", ";", "5,1;x", "a,1,2,-;x", "5,-1,2,-;x", "5,1,2,-", "5,99999999999999999999,2,-;x"} {
		if r, err := ParseRecord([]byte(raw)); err == nil {
			t.Errorf("%q was read as %+v", raw, r)
		}
	}
}

func TestColoursAreTakenOut(t *testing.T) {
	for raw, want := range map[string]string{
		"\x1b[32m[  12.0] \x1b[0m\x1b[33mNVRM: \x1b[0mXid (PCI:0000:3b:00): 79": "[  12.0] NVRM: Xid (PCI:0000:3b:00): 79",
		"\x1b[1;31mx\x1b[m": "x", "\x1b": "\x1b", "\x1b[": "\x1b[", "\x1b[99": "\x1b[99",
	} {
		if got := Clean([]byte(raw)); got != want {
			t.Errorf("%q became %q, want %q", raw, got, want)
		}
	}
}

func TestCutKeepsCharactersWhole(t *testing.T) {
	for limit, want := range map[int]string{10: "a\u20acb", 5: "a\u20acb", 4: "a\u20ac", 3: "a", 2: "a", 1: "a", 0: ""} {
		if got := Cut("a\u20acb", limit); got != want {
			t.Errorf("cut at %d: %q, want %q", limit, got, want)
		}
	}
}

var recordSeeds = []string{
	"5,0,0,-;Linux\n X=y\n", `4,5,6,-;\x\xf\xff\\x`, "\x00\xff;,", "3,1000,77,-,caller=T42;NVRM: Xid (PCI:0000:3b:00): 79",
	"Nov 21 05:04:01 host kernel: [    0.000000] Linux version 6.1", "kern  :warn  : \x1b[33m[    0.000000] Linux version 6.1",
}

func checkRecord(t *testing.T, raw []byte) {
	r, err := ParseRecord(raw)
	if err == nil && (!utf8.ValidString(r.Text) || r.Level > 7 || r.Level < 0 || r.Facility < 0) {
		t.Errorf("record %+v", r)
	}
	line := Clean(raw)
	_ = Tag(line, len(line)/2)
}

func TestDamagedRecords(t *testing.T) { mutate.Each(t, 3000, recordSeeds, checkRecord) }

func FuzzParseRecord(f *testing.F) {
	for _, seed := range recordSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(checkRecord)
}
