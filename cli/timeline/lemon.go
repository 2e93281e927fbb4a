package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Lemon is a Node whose machine needed too many repairs.
type Lemon struct {
	Node  string    `json:"node"`
	Since time.Time `json:"since,omitzero"`
	// Repairs are those within Window, a duration's text, until now; Last is the newest.
	Repairs int       `json:"repairs"`
	Window  string    `json:"window,omitempty"`
	Last    time.Time `json:"last,omitzero"`
	// Kept says that it stays in quarantine until a person releases it.
	Kept bool `json:"kept"`
}

// lemonOf is a Node's lemon mark; false if it bears none.
func lemonOf(n Node, now time.Time) (Lemon, bool) {
	if n.Lemon == nil {
		return Lemon{}, false
	}
	l := Lemon{Node: n.Name, Since: n.Lemon.Since, Repairs: n.Lemon.Within(now), Window: n.Lemon.Window, Kept: n.Lemon.Kept != "" && n.Lemon.Kept == n.Session}
	for _, r := range n.Lemon.Repairs {
		if r.At.After(l.Last) {
			l.Last = r.At
		}
	}
	return l, true
}

// lemons are the marked Nodes, the oldest mark first.
func lemons(nodes []Node, now time.Time) (out []Lemon) {
	for _, n := range nodes {
		if l, ok := lemonOf(n, now); ok {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b Lemon) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Node, b.Node)) })
	return out
}

// repairs says how many repairs it needed, the last one when, and what becomes of it.
func (l Lemon) repairs(last string) string {
	text := "marked manually"
	if !l.Last.IsZero() {
		text = fmt.Sprintf("needed %d repairs", l.Repairs)
		if window, err := time.ParseDuration(l.Window); err == nil {
			text += " within " + span(window)
		}
		text += ", the last " + last
	}
	if l.Kept {
		text += ", kept in quarantine until manual release"
	}
	return text
}

// text says it of one node. It tells no ages: who follows is told what changes.
func (l Lemon) text() string {
	at := func(t time.Time) string { return t.UTC().Format(time.DateTime) + " UTC" }
	text := "the Node is marked as a repeat offender"
	if !l.Since.IsZero() {
		text += " since " + at(l.Since)
	}
	return text + ": " + l.repairs("at "+at(l.Last))
}

// lemons lists them.
func (p *page) lemons(f Fleet) {
	list(p, []string{"REPEAT OFFENDER", "FOR", "WHY"}, f.Lemons, func(l Lemon) (Mood, []string) {
		return Alert, []string{plain(l.Node), age(f.At, l.Since), l.repairs(span(f.At.Sub(l.Last)) + " ago")}
	})
}
