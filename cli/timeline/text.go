package timeline

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
)

// Style is how a text is written.
type Style struct {
	// Zone of every time shown; nil is UTC.
	Zone *time.Location
	// Paint colours a piece of text; nil leaves it plain.
	Paint func(Mood, string) string
	// All shows every stay, fault and group instead of the newest.
	All bool
}

// What is shown without Style.All.
const (
	shownStays  = 1
	shownFaults = 10
	shownGroups = 8
)

// page collects lines; the writer's error is kept for the end.
type page struct {
	Style
	out strings.Builder
}

func (s Style) page() *page {
	if s.Zone == nil {
		s.Zone = time.UTC
	}
	return &page{Style: s}
}

func (p *page) line(format string, args ...any) { fmt.Fprintf(&p.out, format+"\n", args...) }

func (p *page) paint(m Mood, text string) string {
	if p.Paint == nil || m == Plain {
		return text
	}
	return p.Paint(m, text)
}

func (p *page) writeTo(w io.Writer) error {
	if _, err := io.WriteString(w, p.out.String()); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

// day and clock are the two halves of an instant; a clock without a fraction
// comes from a source that has whole seconds.
func (p *page) day(t time.Time) string { return t.In(p.Zone).Format(time.DateOnly) }

func (p *page) clock(t time.Time) string {
	if t.Nanosecond() == 0 {
		return t.In(p.Zone).Format(time.TimeOnly)
	}
	return t.In(p.Zone).Format("15:04:05.000")
}

func (p *page) moment(t time.Time) string { return p.day(t) + " " + p.clock(t.Truncate(time.Second)) }

// span is a duration as a person says it.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + span(-d)
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}

// plain is text without what could move a terminal's cursor, in one line.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, text)
}

// longest is how much of a message is shown.
const longest = 400

// brief is plain, cut to what one looks at; the record has the rest.
func brief(text string) string {
	text = plain(text)
	if runes := []rune(text); len(runes) > longest {
		return fmt.Sprintf("%s ... (%d characters more)", string(runes[:longest]), len(runes)-longest)
	}
	return text
}

// moodOf is how good a phase is.
func moodOf(ph Phase) Mood {
	switch ph {
	case InService:
		return Good
	case NeedsHuman, Gone:
		return Bad
	case Remediating, Draining, Quarantined, Recovering, Releasing, Held, Unjudged, Unknown:
		return Alert
	case Cordoned, NotReady:
	}
	return Plain
}

// sources says what is missing; nothing is said of sources that answered.
func (p *page) sources(sources []Source) {
	for _, s := range sources {
		if s.Whole() {
			continue
		}
		what := "not read"
		if s.Read {
			what = "read in part"
		}
		p.line("%s", p.paint(Bad, fmt.Sprintf("! %s %s: %s", s.Name, what, brief(s.Problem))))
	}
}

// tags are what to look for.
func tags(record, object string) string {
	var out []string
	if record != "" {
		out = append(out, "record "+record)
	}
	if object != "" {
		out = append(out, object)
	}
	if len(out) == 0 {
		return ""
	}
	return "  [" + plain(strings.Join(out, ", ")) + "]"
}
