package timeline

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Kind is what a step of a chain is.
type Kind string

// Kinds, in the order of an event's walk.
const (
	Line       Kind = "line"
	Event      Kind = "event"
	Signal     Kind = "signal"
	Confirmed  Kind = "confirmed"
	Verdict    Kind = "verdict"
	Quarantine Kind = "quarantine"
	Drain      Kind = "drain"
	Repair     Kind = "object"
	Progress   Kind = "progress"
	Outcome    Kind = "outcome"
	Recovery   Kind = "recovery"
	Cleared    Kind = "cleared"
	// Waiting is what has not happened yet.
	Waiting Kind = "waiting"
)

// Mood says how good a step is, for colours.
type Mood string

// Moods.
const (
	Plain Mood = ""
	Good  Mood = "good"
	Bad   Mood = "bad"
	Alert Mood = "alert"
)

// Step is one thing that happened to a fault, or is waited for.
type Step struct {
	Kind Kind `json:"kind"`
	// At is when; zero is unknown. Objects' times are whole seconds.
	At   time.Time `json:"at,omitzero"`
	Text string    `json:"text"`
	Mood Mood      `json:"mood,omitempty"`
	// Record and Object are what to look for: a record's id; kind/name.
	Record string `json:"record,omitempty"`
	Object string `json:"object,omitempty"`
}

// Chain is one fault from its line to its end.
type Chain struct {
	Record string `json:"record"`
	// Open says that the fault still holds the node.
	Open  bool   `json:"open"`
	Steps []Step `json:"steps"`
}

// builder knows what chains refer to.
type builder struct {
	byID    map[string]record.Record
	objects map[string]Object
	facts   Facts
}

func newBuilder(f Facts) builder {
	b := builder{byID: map[string]record.Record{}, objects: map[string]Object{}, facts: f}
	for _, r := range f.Records {
		b.byID[r.ID] = r
	}
	for _, o := range f.Objects {
		b.objects[o.UID] = o
	}
	return b
}

// chain tells one fault.
func (b builder) chain(r record.Record) Chain {
	c := Chain{Record: r.ID, Open: record.Open(r), Steps: b.confirmed(r, report(r.Event, r.ID, r.CreatedAt))}
	for _, part := range []func(record.Record) []Step{b.verdict, b.drain, b.repair, b.end, b.waiting} {
		c.Steps = append(c.Steps, part(r)...)
	}
	return c
}

// lineAgents publish the raw line as their message.
var lineAgents = map[string]bool{"syslog-health-monitor": true}

// report is the line and the event made of it.
func report(e record.Event, id string, at time.Time) []Step {
	text := e.Message
	if !lineAgents[e.Agent] {
		text = e.Agent + " says: " + text
	}
	var about []string
	if e.BootID() != "" {
		about = append(about, "boot "+e.BootID())
	}
	if n, since := e.Repeats(); n > 1 {
		about = append(about, fmt.Sprintf("the last of %d like it within %s", n, e.GeneratedTimestamp.Sub(since).Round(100*time.Millisecond)))
	}
	return []Step{
		{Kind: Line, At: e.GeneratedTimestamp, Text: text},
		{Kind: Event, At: at, Record: id, Text: strings.Join(append([]string{gist(e)}, about...), "; ")},
	}
}

// gist is an event in one line: check, codes, action, what it touches.
func gist(e record.Event) string {
	var b strings.Builder
	b.WriteString(e.CheckName)
	if len(e.ErrorCode) > 0 {
		b.WriteString(" " + strings.Join(e.ErrorCode, ","))
	}
	if !e.IsHealthy {
		b.WriteString(", " + string(e.EffectiveAction()))
		if !e.IsFatal {
			b.WriteString(", not fatal")
		}
	}
	const shown = 4
	for i, x := range e.EntitiesImpacted {
		if i == shown {
			fmt.Fprintf(&b, " and %d more", len(e.EntitiesImpacted)-shown)
			break
		}
		b.WriteString(" " + x.EntityType + ":" + x.EntityValue)
	}
	return b.String()
}

func (b builder) verdict(r record.Record) []Step {
	v := r.Status.QuarantineVerdict
	if v == nil {
		return nil
	}
	s := Step{Kind: Verdict, At: v.At, Text: string(v.Reason)}
	if len(v.RuleSets) > 0 {
		s.Text += " by rule " + quoted(v.RuleSets)
	}
	if effects := marks(v.Effects); effects != "" {
		s.Text += ": " + effects
	}
	s.Text = joined(s.Text, cmp.Or(v.Detail, explain(v.Reason)))
	if v.Reason == record.Held {
		s.Mood = Alert
	}
	steps := []Step{s}
	if q := r.Status.NodeQuarantined; q != record.NotQuarantined {
		text := string(q)
		if q == record.QuarantineCanceled { // what it was then is not stored any more
			text = "in quarantine (later " + text + ")"
		}
		steps = append(steps, Step{Kind: Quarantine, At: instant(r.Status.QuarantineFinishTimestamp), Text: text})
	}
	return steps
}

func quoted(names []string) string {
	var out []string
	for _, n := range names {
		out = append(out, fmt.Sprintf("%q", n))
	}
	return strings.Join(out, ", ")
}

// marks is what a verdict asks of the Node.
func marks(e record.Effects) string {
	var out []string
	if e.Cordon {
		out = append(out, "cordon")
	}
	for _, x := range e.Taints {
		out = append(out, "taint "+x.Key+"="+x.Value+":"+x.Effect)
	}
	for _, x := range e.Labels {
		out = append(out, "label "+x.Key+"="+x.Value)
	}
	return strings.Join(out, ", ")
}

func (b builder) drain(r record.Record) []Step {
	e := r.Status.UserPodsEvictionStatus
	if e.Status == record.EvictionUnset {
		return nil
	}
	s := Step{Kind: Drain, At: instant(r.Status.DrainFinishTimestamp), Text: joined(string(e.Status), e.Message)}
	if e.Status == record.EvictionFailed {
		s.Mood = Bad
	}
	return []Step{s}
}

func instant(at *time.Time) time.Time {
	if at == nil {
		return time.Time{}
	}
	return *at
}
