package redact

import (
	"strings"
	"testing"
)

// TestPlain: a line as a reader sees it.
func TestPlain(t *testing.T) {
	for line, want := range map[string]string{
		"":                              "",
		"a\tb\r":                        "a\tb\r",
		"\x1b[1;31mred\x1b[0m":          "red",
		"\x1b[2K\x1b[0 qx":              "x",
		"\u009b31mx":                    "x",
		"\x1b(B\x1b[mx\x1b7":            "x",
		"\x1b]0;title\ax":               "x",
		"\x1b]8;;http://a\x1b\\x":       "x",
		"\x1bPq#0\x1b\\x\x1b_y\x1b\\":   "x",
		"\x1b]0;no end":                 "]0;no end",
		"a\x1bb\x1b":                    "ab",
		"\x1b\x1b[0m[31mx":              "[31mx",
		`\u001b[31mx\u001B[0m`:          "x",
		`\\u001b[31mx`:                  "x",
		`\x1b[31mx\033[0my\e[0mz`:       "xyz",
		`#033[31mx^[[0my`:               "xy",
		`\u001b]8;;http://a\u0007x`:     "x",
		`\u001b]8;;http://a\u001b\\x`:   "x",
		"a\u00a0b\u2003c\u3000d\u0085e": "a b c d e",
		"a\u200bb\ufeffc\u00add\u202ee": "abcde",
		`a\u00a0b\u200bc`:               "a bc",
		"a\xa0b":                        "a b",
		"a\x00b\x07c\x7fd":              "a bcd",
		"\xff\xfe \x80 é µ 漢":           "\xff\xfe \x80 é µ 漢",
		`C:\extra \u00e9 ^[[:alpha:]]`:  `C:\extra \u00e9 ^[[:alpha:]]`,
	} {
		if out, ok := plain([]byte(line)); string(out) != want || !ok {
			t.Errorf("%q is plain %q, %v; want %q", line, out, ok, want)
		}
	}
}

// TestSequencesWithinSequences: as deep as is looked, and deeper.
func TestSequencesWithinSequences(t *testing.T) {
	nested := func(depth int) string {
		return strings.Repeat(`\u001`, depth) + strings.Repeat("b[0m", depth) + "password=" + hidden
	}
	if out, n := Line([]byte(nested(maxRounds - 1))); string(out) != "password="+Mask || n != 1 {
		t.Errorf("%d deep: %q, %d", maxRounds-1, out, n)
	}
	if out, n := Line([]byte(nested(maxRounds + 1))); string(out) != Mask || n != 1 {
		t.Errorf("%d deep: %q, %d", maxRounds+1, out, n)
	}
	if out, w := clean(t, nested(maxRounds+1)+"\nx\n", 4096); out != Mask+"\nx\n" || w.Redactions != 1 {
		t.Errorf("in a log: %q, %d", out, w.Redactions)
	}
}
