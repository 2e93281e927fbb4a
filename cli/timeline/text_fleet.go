package timeline

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// counted are the phases that are always counted aloud.
var counted = map[Phase]bool{InService: true, NeedsHuman: true, Remediating: true, Draining: true, Quarantined: true, Held: true}

// Write writes the fleet as text.
func (f Fleet) Write(w io.Writer, style Style) error {
	p := style.page()
	nodes := "nodes unknown"
	if f.Total >= 0 {
		nodes = fmt.Sprintf("%d nodes", f.Total)
	}
	if f.Total == 1 {
		nodes = "1 node"
	}
	p.line("%s    (%s, times in %s)", nodes, p.moment(f.At), p.Zone)
	p.sources(f.Sources)
	var counts []string
	for _, ph := range Phases() {
		n, known := f.Counts[ph]
		if n == 0 && !counted[ph] {
			continue
		}
		text := fmt.Sprintf("%s %d", ph, n)
		if !known {
			text = string(ph) + " unknown"
		}
		if n > 0 {
			text = p.paint(moodOf(ph), text)
		}
		counts = append(counts, text)
	}
	p.line("  %s", strings.Join(counts, "   "))
	p.pause(f.Pause, f.Sources, f.At, true)
	p.checks(f)
	p.dryRun(f)
	p.uncovered(f)
	p.undelivered(f)
	p.counted(f)
	for _, a := range f.DeadLettered {
		p.line("%s", p.paint(Alert, "! "+plain(a.text(f.At))+" ("+plain(a.Key)+")"))
	}
	p.undecodable(f.Undecodable)
	p.rows(f)
	p.runs(f)
	p.repeatOffenders(f)
	p.orphaned(f)
	p.consumers(f)
	return p.writeTo(w)
}

func (p *page) rows(f Fleet) {
	list(p, []string{"NODE", "PHASE", "FOR", "WHY"}, f.Rows, func(r Row) (Mood, []string) {
		first := ""
		if len(r.Records) > 0 {
			first = r.Records[0]
		}
		why := truncate(r.Reason) + tags(first, r.Object)
		if r.Turn > 0 {
			why = fmt.Sprintf("turn %d of %d: %s", r.Turn, f.Counts[Held], why)
		}
		switch n := len(r.Records) - 1; {
		case n == 1:
			why += " and 1 more record"
		case n > 1:
			why += fmt.Sprintf(" and %d more records", n)
		}
		return moodOf(r.Phase), []string{plain(r.Node), string(r.Phase), age(f.At, r.Since), why}
	})
}

// list prints a list as a table under its heads, and above it what introduces it; for an
// empty list it prints nothing.
func list[T any](p *page, heads []string, all []T, row func(T) (Mood, []string), intro ...string) {
	if len(all) == 0 {
		return
	}
	cells, moods := [][]string{heads}, []Mood{Plain}
	for _, one := range all {
		mood, texts := row(one)
		cells, moods = append(cells, texts), append(moods, mood)
	}
	p.line("")
	for _, line := range intro {
		p.line("%s", line)
	}
	p.table(cells, moods)
}

// age is the time since then, as far as that is known.
func age(at, since time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return span(at.Sub(since))
}

// firstOf names the first of a list, and how many more there are.
func firstOf[T any](all []T, most int, name func(T) string) string {
	names := make([]string, 0, most)
	for _, one := range all[:min(len(all), most)] {
		names = append(names, name(one))
	}
	text := strings.Join(names, ", ")
	if n := len(all) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

func itself(name string) string { return name }

// alert prints in a line how many there are and names the first; for an empty list it
// prints nothing.
func alert[T any](p *page, text string, all []T, most int, name func(T) string) {
	if len(all) > 0 {
		p.line("%s", p.paint(Alert, fmt.Sprintf(text, len(all), firstOf(all, most, name))))
	}
}

// maxDryRunNodes are as many Nodes as are named of those that a dry run left alone.
const maxDryRunNodes = 8

// dryRun prints that fault-quarantine is or was in dry-run mode, and what it left undone.
func (p *page) dryRun(f Fleet) {
	d := f.DryRun
	if d == nil {
		return
	}
	text := "fault-quarantine ran in dry-run mode until " + p.moment(d.At)
	if d.Now {
		text = "fault-quarantine runs in dry-run mode (its newest evaluation, " + span(f.At.Sub(d.At)) + " ago)"
	}
	p.line("%s", p.paint(Alert, plain(fmt.Sprintf("! %s: for the nodes of the newest %d faults, %d held and %d skipped, %d would have been quarantined without the budget: %s",
		text, d.Of, d.Held, d.Skipped, len(d.Nodes), firstOf(d.Nodes, maxDryRunNodes, itself)))))
}

// undecodableRecords are as many as are named.
const undecodableRecords = 4

// undecodable names records that nobody can read.
func (p *page) undecodable(ids []string) {
	if len(ids) == 0 {
		return
	}
	p.line("%s", p.paint(Alert, "! "+plain(fmt.Sprintf("%d stored records cannot be decoded and are skipped by all services: %s, see docs/tasks/choose-a-store.md",
		len(ids), firstOf(ids, undecodableRecords, itself)))))
}

// text describes what became of the record, and where to read on.
func (d DeadLetter) text(now time.Time) string {
	if d.Record == "" {
		return fmt.Sprintf("%s crashed %d times in a row while it processed %s, as of %s ago: other items are processed first, see docs/concepts/quarantine.md",
			d.Consumer, d.Crashes, d.Key, span(now.Sub(d.At)))
	}
	left := "no service processes it"
	switch d.Consumer {
	case "event-exporter":
		left = "it is not exported"
	case record.AnalyzerAgent:
		left = "no rule evaluates it"
	case NodesConnector:
		left = "it is not stored"
	}
	return fmt.Sprintf("record %s killed %s each time it was processed, and has been skipped for %s: %s, see docs/concepts/quarantine.md",
		d.Record, d.Consumer, span(now.Sub(d.At)), left)
}

// orphaned names the faults that may never be lifted, and the way out.
func (p *page) orphaned(f Fleet) {
	list(p, []string{"NODE", "AGENT", "SINCE", "FAULT"}, f.Orphaned, func(s OrphanedFault) (Mood, []string) {
		return Alert, []string{plain(s.Node), plain(s.Agent), span(f.At.Sub(s.At)), plain(s.Check) + tags(s.Record, "")}
	}, fmt.Sprintf("! %d open faults of publishers that are now PERSIST_ONLY: they end only with a PROCESS recovery or with a release of the node", len(f.Orphaned)))
}

func (p *page) consumers(f Fleet) {
	list(p, []string{"CONSUMER", "WAITING", "OLDEST", "LAST COMMIT", ""}, f.Consumers, func(c Consumer) (Mood, []string) {
		waiting, oldest, commit, mood := "unknown", "-", "never", Alert
		if c.Known {
			waiting, mood = fmt.Sprint(c.Waiting), Plain
			if c.More {
				waiting += " or more"
			}
		}
		if !c.Oldest.IsZero() {
			oldest, mood = span(f.At.Sub(c.Oldest)), Alert
		}
		if !c.CommittedAt.IsZero() {
			commit = span(f.At.Sub(c.CommittedAt)) + " ago"
		}
		note := c.Problem
		if c.Lost != "" {
			note = joined("reading again after a lost position ("+c.Lost+")", note)
		}
		return mood, []string{plain(c.Name), waiting, oldest, commit, truncate(note)}
	})
}

// table aligns columns; a row's second cell is coloured.
func (p *page) table(rows [][]string, moods []Mood) {
	widths := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, c := range r {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	for n, r := range rows {
		var b strings.Builder
		for i, c := range r {
			cell := c
			if i == 1 {
				cell = p.paint(moods[n], c)
			}
			b.WriteString(cell)
			if i < len(r)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+2))
			}
		}
		p.line("%s", strings.TrimRight(b.String(), " "))
	}
}
