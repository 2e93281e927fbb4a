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

func TestFromKernelAndStartsBoot(t *testing.T) {
	for _, c := range []struct {
		line         string
		kernel, boot bool
	}{
		{"Linux version 6.1", true, true},
		{"[    0.000000] Linux version 6.1", true, true},
		{"Nov 21 05:04:01 host kernel: [    0.000000] Linux version 6.1", true, true},
		{"2026-11-21T05:04:01.123456+00:00 host kernel: Linux version 6.1", true, true},
		{"<5>[    0.000000] Linux version 6.1", true, true},
		{"Nov 21 05:04:01 host sudo[77]: root : COMMAND=/bin/echo Linux version 6.1", false, false},
		{"Nov 21 05:04:01 host app: Linux version 6.1", false, false},
		{"[   12.0] module says Linux version 6.1", true, false},
		{"kern  :notice: [    0.000000] Linux version 6.1", true, true},
		{"kern  :warn  : 2026-03-01T12:00:00,123456+00:00 Linux version 6.1", true, false},
		{"user  :warn  : [   12.0] Linux version 6.1", false, false},
		{"syslog:err   : 2025-05-27T04:18:56,089671+00:00 Linux version 6.1", false, false},
		{"kern  :loud  : [   12.0] Linux version 6.1", false, false},
		{"Nov 21 05:04:01 host kernel[0]: Linux version 6.1", true, false},
		{"Nov 21 05:04:01 host kernel[0: Linux version 6.1", false, false},
		{"Nov 21 05:04:01 host : Linux version 6.1", false, false},
		{"Nov 21 05:04:01 host [7]: Linux version 6.1", false, false},
	} {
		at := len(c.line) - len("Linux version 6.1")
		if got := FromKernel(c.line, at); got != c.kernel {
			t.Errorf("%q: from the kernel %t", c.line, got)
		}
		if got := StartsBoot(c.line); got != c.boot {
			t.Errorf("%q: starts a boot %t", c.line, got)
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
	_ = StartsBoot(line)
	_ = Tag(line, len(line)/2)
	_ = FromKernel(line, len(line)+3)
}

func TestDamagedRecords(t *testing.T) { mutate.Each(t, 3000, recordSeeds, checkRecord) }

func FuzzParseRecord(f *testing.F) {
	for _, seed := range recordSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(checkRecord)
}

func TestForeign(t *testing.T) {
	for line, want := range map[string]string{
		"Mar  1 12:00:00 gpu-1 kernel: [    1.0] NVRM: Xid (PCI:0000:3b:00): 79": "",
		"Mar 11 12:00:00 gpu-1 kernel[12]: NVRM: Xid":                            "",
		"Mar  1 12:00:00 gpu-1 sshd[812]: Accepted publickey for root":           "sshd",
		"2026-03-01T12:00:00.123456+00:00 gpu-1 systemd: Started":                "systemd",
		"2026-03-01T12:00:00Z gpu-1 kernel: x":                                   "",
		"<13>Mar  1 12:00:00 gpu-1 root: kernel: NVRM: Xid (PCI:0000:3b:00): 79": "root",
		"[    1.0] NVRM: Xid (PCI:0000:3b:00): 79":                               "",
		"NVRM: Xid (PCI:0000:3b:00): 79":                                         "",
		"Mar  1 12:00:00 gpu-1 last message repeated 2 times":                    "",
		"": "",
	} {
		if got := Foreign(line); got != want {
			t.Errorf("%q of %q, want %q", got, line, want)
		}
	}
}
