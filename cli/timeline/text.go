package timeline

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/nvidia/nvsentinel/data-models/record"
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
		return fmt.Errorf("writing the output: %w", err)
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

// span is a duration as a person writes it.
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

// truncate is plain, cut to what one looks at; the record has the rest.
func truncate(text string) string {
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
	case NeedsHuman, NodeDeleted:
		return Bad
	case Remediating, Draining, Quarantined, Recovering, Releasing, Held, PendingEvaluation, Unknown:
		return Alert
	case Cordoned, NotReady:
	}
	return Plain
}

// sources prints what is missing, and nothing about sources that answered.
func (p *page) sources(sources []Source) {
	for _, s := range sources {
		if s.Complete() {
			continue
		}
		what := "not read"
		if s.Read {
			what = "read partially"
		}
		p.line("%s", p.paint(Bad, fmt.Sprintf("! %s %s: %s", s.Name, what, truncate(s.Problem))))
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

// Write writes the timeline as text.
func (t Timeline) Write(w io.Writer, style Style) error {
	p := style.page()
	p.line("%s: %s    (%s, times in %s)", plain(t.Node), p.paint(moodOf(t.Standing.Phase), string(t.Standing.Phase)), p.moment(t.At), p.Zone)
	if t.Standing.Reason != "" {
		p.line("  %s", truncate(t.Standing.Reason))
	}
	p.sources(t.Sources)
	p.pause(t.Pause, t.Sources, t.At, false)
	if t.Sighting != nil {
		p.sighting(*t.Sighting)
	}
	p.watched(t)
	for _, n := range t.Notes {
		p.line("%s", p.paint(Alert, "! "+truncate(n)))
	}
	for _, n := range t.Settled {
		p.line("  %s", truncate(n))
	}
	p.stays(t)
	p.groups(t.Others, t.At)
	return p.writeTo(w)
}

func (p *page) sighting(n Node) {
	ready, marks := "Ready", "schedulable"
	if n.Ready != "True" {
		ready = "not Ready (" + n.Ready + ")"
	}
	if n.Unschedulable {
		marks = "cordoned"
	}
	for _, t := range n.Taints {
		marks += ", taint " + t.Key + ":" + t.Effect
	}
	if n.State != "" {
		marks += ", state " + string(n.State)
	}
	p.line("  Node: %s, %s, boot %s", ready, plain(marks), plain(n.Identity.BootID))
	for _, c := range n.Conditions {
		p.line("  condition %s=%s: %s", plain(c.Type), c.Status, truncate(c.Message))
	}
}

func (p *page) stays(s Timeline) {
	if len(s.Stays) == 0 && s.Sources[0].Read {
		p.line("\nNo quarantine session is stored.")
	}
	for i, stay := range s.Stays {
		if i == shownStays && !p.All {
			p.line("\n%d earlier quarantine sessions, use --all to show them.", len(s.Stays)-i)
			return
		}
		p.stay(stay, s.At)
	}
}

func (p *page) stay(s Stay, now time.Time) {
	when := "since an unknown time"
	switch {
	case s.Began.IsZero():
	case s.Ended.IsZero():
		when = fmt.Sprintf("since %s, for %s", p.moment(s.Began), span(now.Sub(s.Began)))
	case p.day(s.Began) == p.day(s.Ended):
		when = fmt.Sprintf("%s to %s, %s", p.moment(s.Began), p.clock(s.Ended.Truncate(time.Second)), span(s.Ended.Sub(s.Began)))
	default:
		when = fmt.Sprintf("%s to %s, %s", p.moment(s.Began), p.moment(s.Ended), span(s.Ended.Sub(s.Began)))
	}
	p.line("\nIn quarantine %s  [session %s]", when, plain(s.Session))
	dated := p.dated(s)
	for i, c := range s.Chains {
		if i == shownFaults && !p.All {
			p.line("  and %d more faults, use --all to show them", len(s.Chains)-i)
			return
		}
		if len(s.Chains) > 1 {
			p.line("  fault %d of %d", i+1, len(s.Chains))
		}
		p.chain(c, dated)
	}
}

// chain writes one fault: when, how long after the step before, what; with the
// date when the stay has several.
func (p *page) chain(c Chain, dated bool) {
	layout := len("15:04:05.000")
	if dated {
		layout = len("01-02 15:04:05.000")
	}
	var before time.Time
	for _, s := range c.Steps {
		at, took := "-", ""
		if !s.At.IsZero() {
			at = p.clock(s.At)
			if dated {
				at = p.day(s.At)[len("2006-"):] + " " + at
			}
			if !before.IsZero() && !s.At.Before(before) {
				took = "+" + span(s.At.Sub(before))
			}
			before = s.At
		}
		if s.Kind == Waiting {
			at = "now"
		}
		p.line("  %-*s %8s  %-10s  %s%s", layout, at, took, s.Kind, p.paint(s.Mood, truncate(s.Text)), tags(s.Record, s.Object))
	}
}

// dated reports whether the steps of a stay lie on several days, or on another
// one than its heading states.
func (p *page) dated(s Stay) bool {
	days := map[string]bool{}
	if !s.Began.IsZero() {
		days[p.day(s.Began)] = true
	}
	for _, c := range s.Chains {
		for _, x := range c.Steps {
			if !x.At.IsZero() && x.Kind != Waiting {
				days[p.day(x.At)] = true
			}
		}
	}
	return len(days) > 1
}

func (p *page) groups(groups []Group, now time.Time) {
	if len(groups) == 0 {
		return
	}
	p.line("\nOther records (they led to no quarantine):")
	for i, g := range groups {
		if i == shownGroups && !p.All {
			p.line("  and %d more kinds, use --all to show them", len(groups)-i)
			return
		}
		when := p.moment(g.Last)
		if g.Count > 1 {
			when = fmt.Sprintf("%s to %s, %d times", p.moment(g.First), p.moment(g.Last), g.Count)
		}
		verdict, mood := g.Reason, Plain
		if words := explain(record.Reason(g.Reason)); words != "" {
			verdict += " (" + words + ")"
		}
		switch {
		case g.Strategy != string(record.Process):
			verdict, mood = g.Strategy+", "+verdict, Alert
		case g.Reason == string(record.Held) || g.Reason == pendingEvaluation:
			mood = Alert
		}
		p.line("  %s  %s: %s%s", when, p.paint(mood, verdict), truncate(g.Text), tags(g.Record, ""))
		p.line("      %s", truncate(g.Line))
		if g.Waits != nil {
			p.line("      %s", truncate(g.Waits.text(now, p.moment)))
		}
	}
}
