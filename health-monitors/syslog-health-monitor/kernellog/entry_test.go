package kernellog

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/health-monitors/internal/mutate"
)

const cursor = "s=6fd8b8489e0447109f02a599b7d4776e;i=1f;b=11111111111111111111111111111111;m=3e8;t=66517289883e8;x=88436a1be8bf77a8"

var place = Position{
	File: "6fd8b8489e0447109f02a599b7d4776e", Seq: 0x1f, Boot: strings.Repeat("1", 32), Monotonic: 1000, Wall: 1800000000001000,
}

func TestParseEntry(t *testing.T) {
	for _, c := range []struct {
		name, fields string
		want         Entry
	}{
		{"kernel", `"_TRANSPORT":"kernel","SYSLOG_FACILITY":"0","SYSLOG_IDENTIFIER":"kernel","MESSAGE":"a"`, Entry{Text: "a", Kernel: true}},
		{"kernel without facility", `"_TRANSPORT":"kernel","MESSAGE":"a"`, Entry{Text: "a", Kernel: true}},
		{"root through kmsg", `"_TRANSPORT":"kernel","SYSLOG_FACILITY":"3","SYSLOG_IDENTIFIER":"echo","MESSAGE":"a"`, Entry{Text: "echo: a", Root: true}},
		{"root", `"_TRANSPORT":"syslog","_UID":"0","SYSLOG_IDENTIFIER":"x","MESSAGE":"a"`, Entry{Text: "x: a", Root: true}},
		{"user", `"_TRANSPORT":"syslog","_UID":"10","SYSLOG_IDENTIFIER":"kernel","MESSAGE":"a"`, Entry{Text: "kernel: a"}},
		{"bytes", `"_TRANSPORT":"kernel","MESSAGE":[97,255,98]`, Entry{Text: "a\uFFFDb", Kernel: true}},
		{"empty bytes", `"_TRANSPORT":"kernel","MESSAGE":[]`, Entry{Kernel: true}},
		{"repeated", `"_TRANSPORT":"kernel","MESSAGE":["a","b"]`, Entry{Text: "a", Kernel: true}},
		{"repeated bytes", `"_TRANSPORT":"kernel","MESSAGE":[[97],[98]]`, Entry{Text: "a", Kernel: true}},
		{"withheld", `"_TRANSPORT":"kernel","MESSAGE":null`, Entry{Short: true, Kernel: true}},
		{"missed", `"_TRANSPORT":"driver","_UID":"0","MESSAGE_ID":"e9bf28e6e834481bb6f48f548ad13606","MESSAGE":"Missed 12 kernel messages"`,
			Entry{Text: "Missed 12 kernel messages", Root: true, Missed: 12}},
		{"missed without number", `"_TRANSPORT":"driver","_UID":"0","MESSAGE_ID":"e9bf28e6e834481bb6f48f548ad13606","MESSAGE":"Missed"`,
			Entry{Text: "Missed", Root: true, Missed: 1}},
		{"missed by a user", `"_TRANSPORT":"journal","_UID":"7","MESSAGE_ID":"e9bf28e6e834481bb6f48f548ad13606","MESSAGE":"Missed 12"`, Entry{Text: "Missed 12"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseEntry([]byte(`{"__CURSOR":"` + cursor + `","__REALTIME_TIMESTAMP":"1800000000001000",` + c.fields + "}\n"))
			c.want.Cursor, c.want.Position = cursor, place
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("error %v, entry (-want +got):\n%s", err, diff)
			}
		})
	}
	for _, bad := range []string{
		"", "{", "[]", "{}", `{"__CURSOR":7}`, `{"__CURSOR":"s=x"}`, `{"__CURSOR":"` + strings.Replace(cursor, "i=1f", "i=zz", 1) + `"}`,
		`{"__CURSOR":"` + strings.Replace(cursor, "b=1", "b=../1", 1) + `"}`, `{"__CURSOR":"` + cursor + strings.Repeat(";y=1", 200) + `"}`,
		`{"__CURSOR":"` + cursor + `","MESSAGE":[256]}`, `{"__CURSOR":"` + cursor + `","MESSAGE":[[["deep"]]]}`, `{"__CURSOR":"` + cursor + `","MESSAGE":{}}`,
	} {
		if e, err := ParseEntry([]byte(bad)); err == nil {
			t.Errorf("%.80q was read as %+v", bad, e)
		}
	}
}

// TestParseCursor: a cursor names the file, a number in it and a boot, or is none.
func TestParseCursor(t *testing.T) {
	boot := "0123456789abcdef0123456789abcdef"
	for text, want := range map[string]bool{
		"s=x;i=1;b=" + boot: true, "s=x;i=1;m=a;t=b;x=y;b=" + boot: true, "s=;i=1;b=" + boot: false, "s=x;i=0;b=" + boot: false, "s=x;i=1": false,
		"s=x;i=1;b=" + boot[1:]: false, "s=x;i=1;b=" + boot + "0": false, "s=x;i=1;b=/" + boot[1:]: false, "s=x;i=1;b=:" + boot[1:]: false,
		"s=x;i=1;b=`" + boot[1:]: false, "s=x;i=1;b=g" + boot[1:]: false, "s=x;i=1;b=A" + boot[1:]: false,
		"i=1;b=" + boot + ";s=" + strings.Repeat("x", cursorBytes-len("i=1;s=;b="+boot)):   true,
		"i=1;b=" + boot + ";s=" + strings.Repeat("x", 1+cursorBytes-len("i=1;s=;b="+boot)): false,
	} {
		if p, err := ParseCursor(text); (err == nil) != want {
			t.Errorf("%q: %+v, %v", text, p, err)
		}
	}
	// The journal's own field of the wall time comes before the cursor's.
	for field, want := range map[string]uint64{"7": 7, "": 11, "x": 11} {
		e, err := ParseEntry([]byte(`{"__CURSOR":"s=x;i=1;t=b;b=` + boot + `","__REALTIME_TIMESTAMP":"` + field + `"}`))
		if err != nil || e.Position.Wall != want {
			t.Errorf("wall time %q: %d, %v", field, e.Position.Wall, err)
		}
	}
}

func TestBootIDsOfKernelAndJournal(t *testing.T) {
	const kernel, journal = "697a452c-c145-4943-bdc7-f6c0a1b33afd", "697a452cc1454943bdc7f6c0a1b33afd"
	if got := JournalBoot(strings.ToUpper(kernel)); got != journal {
		t.Errorf("journal's is %s", got)
	}
	if got := KernelBoot(journal); got != kernel {
		t.Errorf("kernel's is %s", got)
	}
	if got := KernelBoot("boot-1"); got != "boot-1" {
		t.Errorf("another id became %s", got)
	}
}

func TestBehind(t *testing.T) {
	a, b, now := strings.Repeat("a", 32), strings.Repeat("b", 32), strings.Repeat("c", 32)
	for _, c := range []struct {
		name        string
		entry, read Position
		want        bool
	}{
		{"the place itself", Position{File: "f", Seq: 5}, Position{File: "f", Seq: 5}, true},
		{"before it, with a later clock", Position{File: "f", Seq: 4, Wall: 9}, Position{File: "f", Seq: 5, Wall: 1}, true},
		{"after it, with an earlier clock", Position{File: "f", Seq: 6, Wall: 1}, Position{File: "f", Seq: 5, Wall: 9}, false},
		{"same boot, earlier", Position{File: "g", Boot: a, Monotonic: 4, Wall: 9}, Position{File: "f", Boot: a, Monotonic: 5}, true},
		{"same boot, later", Position{File: "g", Boot: a, Monotonic: 6}, Position{File: "f", Boot: a, Monotonic: 5, Wall: 9}, false},
		{"the current boot after another", Position{File: "g", Boot: now, Wall: 1}, Position{File: "f", Boot: a, Wall: 9}, false},
		{"another boot after the current one", Position{File: "g", Boot: a, Wall: 9}, Position{File: "f", Boot: now, Wall: 1}, true},
		{"two past boots, earlier", Position{File: "g", Boot: b, Wall: 1}, Position{File: "f", Boot: a, Wall: 9}, true},
		{"two past boots, later", Position{File: "g", Boot: b, Wall: 9}, Position{File: "f", Boot: a, Wall: 1}, false},
	} {
		if got := c.entry.Behind(c.read, now); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

var entrySeeds = []string{
	`{"__CURSOR":"` + cursor + `","__REALTIME_TIMESTAMP":"1800000000001000","MESSAGE":"NVRM: Xid (PCI:0000:3b:00): 79","_TRANSPORT":"kernel","_UID":"0"}`,
	`{"__CURSOR":"` + cursor + `","MESSAGE":[78,86,255],"SYSLOG_IDENTIFIER":["a","b"],"SYSLOG_FACILITY":null}`,
	`{"MESSAGE":"Missed 12 kernel messages","MESSAGE_ID":"e9bf28e6e834481bb6f48f548ad13606","__CURSOR":"` + cursor + `"}`,
}

func checkEntry(t *testing.T, raw []byte) {
	e, err := ParseEntry(raw)
	if err != nil {
		return
	}
	again, err := ParseCursor(e.Cursor)
	if err != nil || again.Seq != e.Position.Seq || again.Boot != e.Position.Boot {
		t.Errorf("cursor %q reads %+v, error %v", e.Cursor, again, err)
	}
	if !utf8.ValidString(e.Text) || e.Kernel && e.Root || e.Missed < 0 {
		t.Errorf("entry %+v", e)
	}
}

func TestDamagedEntries(t *testing.T) { mutate.Each(t, 3000, entrySeeds, checkEntry) }

func FuzzParseEntry(f *testing.F) {
	for _, seed := range entrySeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(checkEntry)
}
