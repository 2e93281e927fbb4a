// Package rule is the language of the analyzer's rules: what one rule can express, how a
// file of rules is read, and the rules that are built in. It decides nothing about events;
// package decision does.
package rule

import (
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Rule defines which pattern of faults is a fault of its own.
type Rule struct {
	// Name is the check name of the derived event.
	Name string `toml:"name"`
	// Description is what the rule finds, in words.
	Description string `toml:"description"`
	// Enabled is true unless the file states otherwise.
	Enabled *bool `toml:"enabled"`
	// Action is what the derived event recommends; with any but NONE it is fatal.
	Action record.Action `toml:"action"`
	// Message of the derived event; empty is the description.
	Message string `toml:"message"`
	// Strategy of the derived event; empty is the service's own.
	Strategy record.Strategy `toml:"processingStrategy"`
	// Clear is when the derived fault is over.
	Clear Clear `toml:"clear"`
	// Window is how far back from the triggering event the rule looks.
	Window time.Duration `toml:"window"`
	// Scope is whose events the window holds; default OnNode.
	Scope Scope `toml:"scope"`

	// When chooses the events that the rule is asked about.
	When Match `toml:"when"`
	// By lists what the counted events share with the triggering one. Its values
	// are the subject of the derived fault.
	By []Key `toml:"by"`
	// Of chooses the events that are counted; left out, it is When.
	Of *Match `toml:"of"`
	// Count is how many events, distinct values or bursts are needed; default 1.
	Count int `toml:"count"`
	// Distinct counts different values of these keys instead of events.
	Distinct []Key `toml:"distinct"`
	// Bursts counts bursts instead of events.
	Bursts *Bursts `toml:"bursts"`
	// Sequence wants these events one after the other, the triggering one last.
	Sequence []Match `toml:"sequence"`
	// Unless keeps the rule still while such an event is in the window.
	Unless []Unless `toml:"unless"`
}

// Match chooses fault events; what is left out does not restrict.
type Match struct {
	Agents   []string `toml:"agents"`
	Classes  []string `toml:"componentClasses"`
	Checks   []string `toml:"checks"`
	Codes    []string `toml:"codes"`
	NotCodes []string `toml:"notCodes"`
	Fatal    *bool    `toml:"fatal"`
	// Entities are entity types of which the event names at least one each.
	Entities []string `toml:"entities"`
	// Register wants one single bit set in the registers that the event names.
	Register *Register `toml:"register"`
	// Remediated wants events whose repair has succeeded.
	Remediated bool `toml:"remediated"`
	// Open wants events that no healthy event has followed.
	Open bool `toml:"open"`
}

// Register matches an event whose registers REG0 to REG6 are all zero but one,
// in which exactly one of the bits is set.
type Register struct {
	Name string `toml:"name"`
	Bits []int  `toml:"bits"`
}

// Bursts groups events that come close together.
type Bursts struct {
	// Gap without an event ends a burst.
	Gap time.Duration `toml:"gap"`
	// Sticky are codes that do not begin a burst when one of them came within
	// StickyWithin before.
	Sticky       []string      `toml:"sticky"`
	StickyWithin time.Duration `toml:"stickyWithin"`
	// By lists what the events of a burst share; left out, it is the rule's By
	// without code.
	By []Key `toml:"by"`
	// Among are the events that make bursts; left out, it is the rule's Of. A
	// burst counts if one of the counted events is in it.
	Among *Match `toml:"among"`
	// Last is how the newest burst, that of the triggering event, counts.
	Last Last `toml:"last"`
}

// Unless is an event that keeps a rule still.
type Unless struct {
	Match
	// By lists what it shares with the triggering event.
	By []Key `toml:"by"`
}

// Scope is whose events a rule looks at.
type Scope string

// Scopes.
const (
	// OnNode is the events of the triggering event's node.
	OnNode Scope = "node"
	// OnCluster is the events of all nodes. What such a rule derives is never
	// fatal: no node is repaired on the evidence of others.
	OnCluster Scope = "cluster"
)

// Clear is when a derived fault is over.
type Clear string

// Clearings. A rule has to choose.
const (
	// WhenSourcesClose: a recovery is published when all source events are closed.
	WhenSourcesClose Clear = "sources"
	// Manual: a person clears it.
	Manual Clear = "manual"
)

// Last is how the newest burst counts.
type Last string

// Ways to count the newest burst.
const (
	// LastAny counts it like every other.
	LastAny Last = "any"
	// LastOnce counts it only while one counted event is in it.
	LastOnce Last = "once"
	// LastAlone counts no other burst, and it only while one counted event is in it.
	LastAlone Last = "alone"
)

// Key is something events can share or differ in: one of the names below, or an
// entity type such as NVLINK.
type Key string

// Keys that are no entity types.
const (
	// Device is one GPU by its best name: GPU_UUID, else PCI, else GPU.
	Device Key = "gpu"
	// Code is one error code.
	Code Key = "code"
	// Check is the check name.
	Check Key = "check"
	// Agent is the agent's name.
	Agent Key = "agent"
	// Fatal is whether the event is fatal.
	Fatal Key = "fatal"
	// Session is the stay in quarantine that the event belongs to.
	Session Key = "session"
	// Node is the node's name; rules of one node do not have it.
	Node Key = "node"
)

// Wanted is Count with its default.
func (r Rule) Wanted() int { return max(1, r.Count) }

// Counted is Of with its default.
func (r Rule) Counted() Match {
	if r.Of == nil {
		return r.When
	}
	return *r.Of
}

// IsFatal reports whether the derived event is fatal.
func (r Rule) IsFatal() bool { return r.Action != record.ActionNone }

// Text is the message of the derived event.
func (r Rule) Text() string {
	if r.Message != "" {
		return r.Message
	}
	return r.Description
}

// Made is Among with its default.
func (b Bursts) Made(r Rule) Match {
	if b.Among == nil {
		return r.Counted()
	}
	return *b.Among
}

// Shared is By with its default.
func (b Bursts) Shared(r Rule) []Key {
	if b.By != nil {
		return b.By
	}
	var out []Key
	for _, k := range r.By {
		if k != Code {
			out = append(out, k)
		}
	}
	return out
}

// Of lists the rules of a scope, in their order.
func (s Scope) Of(rules []Rule) []Rule {
	var out []Rule
	for _, r := range rules {
		if r.Scope == s {
			out = append(out, r)
		}
	}
	return out
}

// Longest is the longest window of the rules.
func Longest(rules []Rule) time.Duration {
	var longest time.Duration
	for _, r := range rules {
		longest = max(longest, r.Window)
	}
	return longest
}
