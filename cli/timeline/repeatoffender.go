package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// RepeatOffender is a Node whose machine needed too many repairs.
type RepeatOffender struct {
	Node  string    `json:"node"`
	Since time.Time `json:"since,omitzero"`
	// Repairs are those within Window, a duration's text, until now; Last is the newest.
	Repairs int       `json:"repairs"`
	Window  string    `json:"window,omitempty"`
	Last    time.Time `json:"last,omitzero"`
	// RequiresRelease is true if it stays in quarantine until a person releases it.
	RequiresRelease bool `json:"kept"`
}

// repeatOffenderOf is a Node's repeat offender mark; false if it bears none.
func repeatOffenderOf(n Node, now time.Time) (RepeatOffender, bool) {
	if n.RepeatOffender == nil {
		return RepeatOffender{}, false
	}
	l := RepeatOffender{Node: n.Name, Since: n.RepeatOffender.Since, Repairs: n.RepeatOffender.Within(now), Window: n.RepeatOffender.Window, RequiresRelease: n.RepeatOffender.RequiresRelease != "" && n.RepeatOffender.RequiresRelease == n.Session}
	for _, r := range n.RepeatOffender.Repairs {
		if r.At.After(l.Last) {
			l.Last = r.At
		}
	}
	return l, true
}

// repeatOffenders are the marked Nodes, the oldest mark first.
func repeatOffenders(nodes []Node, now time.Time) (out []RepeatOffender) {
	for _, n := range nodes {
		if l, ok := repeatOffenderOf(n, now); ok {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b RepeatOffender) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Node, b.Node)) })
	return out
}

// repairs describes how many repairs it needed, when the last one was, and what becomes of it.
func (r RepeatOffender) repairs(last string) string {
	text := "marked manually"
	if !r.Last.IsZero() {
		text = fmt.Sprintf("needed %d repairs", r.Repairs)
		if window, err := time.ParseDuration(r.Window); err == nil {
			text += " within " + span(window)
		}
		text += ", the last " + last
	}
	if r.RequiresRelease {
		text += ", kept in quarantine until manual release"
	}
	return text
}

// text describes it for one node, without ages: who follows a node sees only what changes.
func (r RepeatOffender) text() string {
	at := func(t time.Time) string { return t.UTC().Format(time.DateTime) + " UTC" }
	text := "the Node is marked as a repeat offender"
	if !r.Since.IsZero() {
		text += " since " + at(r.Since)
	}
	return text + ": " + r.repairs("at "+at(r.Last))
}

// repeatOffenders lists them.
func (p *page) repeatOffenders(f Fleet) {
	list(p, []string{"REPEAT OFFENDER", "FOR", "WHY"}, f.RepeatOffenders, func(l RepeatOffender) (Mood, []string) {
		return Alert, []string{plain(l.Node), age(f.At, l.Since), l.repairs(span(f.At.Sub(l.Last)) + " ago")}
	})
}
