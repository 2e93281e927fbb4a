package timeline

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ms", 3 * time.Millisecond: "3ms", 999*time.Millisecond + 999*time.Microsecond: "999ms", time.Second: "1.0s",
		59*time.Second + 960*time.Millisecond: "59.9s", time.Minute: "1m00s", time.Hour - 1: "59m59s", time.Hour: "1h00m", 61*time.Minute + 5*time.Second: "1h01m",
		47*time.Hour + 59*time.Minute: "47h59m", 48 * time.Hour: "2d0h", 50 * time.Hour: "2d2h", -3 * time.Second: "-3.0s",
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
	if got := truncate(strings.Repeat("\u00e9", longest+7)); got != strings.Repeat("\u00e9", longest)+" ... (7 characters more)" {
		t.Errorf("brief = %q", got)
	}
}

// TestShortTextIsNotTruncated: a text is cut only where it is longer than what is shown.
func TestShortTextIsNotTruncated(t *testing.T) {
	for _, tt := range []struct {
		name           string
		text           func(string) string
		most           int
		one, otherwise string // appended for one character more, and for ten
	}{
		{"a message", truncate, longest, " ... (1 characters more)", " ... (10 characters more)"},
		{"a value", short, 60, " ...", " ..."},
	} {
		whole := strings.Repeat("\u00e9", tt.most)
		for more, want := range map[string]string{"": "", "x": tt.one, "xxxxxxxxxx": tt.otherwise} {
			if got := tt.text(whole + more); got != whole+want {
				t.Errorf("%s of %d characters and %q is %q", tt.name, tt.most, more, got)
			}
		}
	}
}

// full is a place that takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// TestAnAnswerThatCannotBeWritten is a failure, regardless of who asked.
func TestAnAnswerThatCannotBeWritten(t *testing.T) {
	s := Timeline{Sources: []Source{{Read: true}, {Read: true}}}
	for name, err := range map[string]error{
		"why": s.Write(full{}, Style{}), "status": Fleet{Sources: s.Sources}.Write(full{}, Style{}), "trace": Trace{}.Write(full{}, Style{}),
	} {
		if err == nil || !strings.Contains(err.Error(), "writing the output: no space left") {
			t.Errorf("%s: %v", name, err)
		}
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
