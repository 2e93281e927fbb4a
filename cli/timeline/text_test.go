package timeline

import (
	"strings"
	"testing"
	"time"
)

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ms", 3 * time.Millisecond: "3ms", 999*time.Millisecond + 999*time.Microsecond: "999ms", time.Second: "1.0s",
		59*time.Second + 960*time.Millisecond: "59.9s", time.Minute: "1m00s", 61*time.Minute + 5*time.Second: "1h01m",
		47*time.Hour + 59*time.Minute: "47h59m", 50 * time.Hour: "2d2h", -3 * time.Second: "-3.0s",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%v) = %q, want %q", d, got, want)
		}
	}
}

// TestPlain: a kernel log is foreign text; it must not reach the terminal's
// controls or add lines.
func TestPlain(t *testing.T) {
	if got := plain("a\x1b[31mb\r\nc\u202ed\x00e\u009bf"); got != "a [31mb  c d e f" {
		t.Errorf("plain = %q", got)
	}
	if got := brief(strings.Repeat("\u00e9", longest+7)); got != strings.Repeat("\u00e9", longest)+" ... (7 characters more)" {
		t.Errorf("brief = %q", got)
	}
}

// TestZone: one zone for every time.
func TestZone(t *testing.T) {
	s := Timeline{Node: "n", At: time.Date(2026, 3, 29, 23, 30, 0, 0, time.UTC), Sources: []Source{{Read: true}, {Read: true}}}
	s.Stays = []Stay{{Session: "s", Began: s.At.Add(-time.Minute), Chains: []Chain{{Steps: []Step{{Kind: Line, At: s.At.Add(-time.Hour), Text: "x"}}}}}}
	var b strings.Builder
	if err := s.Write(&b, Style{Zone: time.FixedZone("there", 2*60*60)}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2026-03-30 01:30:00, times in there", "since 2026-03-30 01:29:00, for 1m00s", "  00:30:00  "} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
