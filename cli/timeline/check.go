package timeline

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Check is a NodeHealthCheck: what it has begun, and why it does not begin more.
type Check struct {
	Name string `json:"name"`
	// Phase is Disabled, Paused, Remediating or Enabled; empty before it was looked
	// at for the first time, and Unreadable for an object that can not be decoded.
	// Reason is its own word for it.
	Phase  string `json:"phase"`
	Reason string `json:"reason,omitempty"`
	// Storm is when its storm recovery began; zero without one.
	Storm time.Time `json:"stormRecoverySince,omitzero"`
	// Patients are the nodes that it holds unhealthy, or has remediations of.
	Patients []MonitoredNode `json:"unhealthyNodes,omitempty"`
}

// MonitoredNode is a node that a NodeHealthCheck looks after.
type MonitoredNode struct {
	Node string `json:"node"`
	// Recovered is since when it has been healthy while its remediations are kept.
	Recovered time.Time `json:"healthySince,omitzero"`
	Tries     []Try     `json:"remediations,omitempty"`
	// Waiting is why no remediation begins, if that is the node's own reason.
	Waiting string `json:"waiting,omitempty"`
}

// Try is one remediation of a node.
type Try struct {
	Kind  string    `json:"kind"`
	Name  string    `json:"name"`
	Began time.Time `json:"began"`
	// Abandoned is when the next step had its turn; zero while this one has it.
	Abandoned time.Time `json:"givenUp,omitzero"`
}

// Unreadable is the phase of a check whose object cannot be decoded; Reason is the cause.
const Unreadable = "Unreadable"

// shownPatients are as many nodes as status names of one check.
const shownPatients = 8

// idle reports whether a check has nothing to show: no node, and no failed action that,
// according to its reason, is retried.
func (c Check) idle() bool {
	return c.Phase == "Enabled" && len(c.Patients) == 0 && c.Storm.IsZero() && !strings.Contains(c.Reason, " retried")
}

func (c Check) mood() Mood {
	if c.idle() {
		return Plain
	}
	return Alert
}

// head is the check's phase, storm and reason.
func (p *page) head(c Check, at time.Time) string {
	text := "NodeHealthCheck " + plain(c.Name) + ": " + plain(c.Phase)
	if c.Phase == "" {
		return text + "not reconciled yet, check that node-health-check is running"
	}
	if !c.Storm.IsZero() {
		text += fmt.Sprintf(", storm recovery since %s (%s): no remediation begins", p.moment(c.Storm), span(at.Sub(c.Storm)))
	}
	// Its reason begins with its phase.
	reason := strings.TrimPrefix(strings.TrimPrefix(c.Reason, c.Phase), ": ")
	if reason == "" {
		return text
	}
	return text + ": " + truncate(reason)
}

// checks prints all checks: those at rest are only counted.
func (p *page) checks(f Fleet) {
	quiet := 0
	for _, c := range f.Checks {
		if c.idle() {
			quiet++
			continue
		}
		p.line("  %s", p.paint(c.mood(), p.head(c, f.At)))
		for i, patient := range c.Patients {
			if i == shownPatients {
				p.line("    and %d more nodes", len(c.Patients)-i)
				break
			}
			p.line("    %s: %s", plain(patient.Node), p.tries(patient, f.At))
		}
	}
	if quiet > 0 {
		p.line("  NodeHealthChecks without unhealthy nodes: %d", quiet)
	}
}

// watched prints the checks of one node.
func (p *page) watched(s Timeline) {
	for _, c := range s.Checks {
		p.line("  %s", p.paint(c.mood(), p.head(c, s.At)))
		if c.Phase == Unreadable {
			p.line("    unknown whether it selects this node: correct the object")
			continue
		}
		i := slices.IndexFunc(c.Patients, func(x MonitoredNode) bool { return x.Node == s.Node })
		if i < 0 {
			p.line("    it selects this node and does not report it as unhealthy")
			continue
		}
		p.line("    this node: %s", p.tries(c.Patients[i], s.At))
	}
}

// tries are a node's remediations in their order.
func (p *page) tries(n MonitoredNode, at time.Time) string {
	var all []string
	for _, t := range n.Tries {
		text := fmt.Sprintf("%s/%s since %s (%s)", plain(t.Kind), plain(t.Name), p.moment(t.Began), span(at.Sub(t.Began)))
		if !t.Abandoned.IsZero() {
			text += ", abandoned at " + p.moment(t.Abandoned)
		}
		all = append(all, text)
	}
	text := strings.Join(all, ", then ")
	if len(all) == 0 {
		text = "unhealthy, no remediation"
	}
	if n.Waiting != "" {
		text += ": " + truncate(n.Waiting)
	}
	if !n.Recovered.IsZero() {
		text += ", healthy again since " + p.moment(n.Recovered)
	}
	return text
}
