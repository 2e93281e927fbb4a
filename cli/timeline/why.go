package timeline

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// Timeline is what happened to one node.
type Timeline struct {
	Node     string    `json:"node"`
	At       time.Time `json:"at"`
	Standing Standing  `json:"standing"`
	Sources  []Source  `json:"sources"`
	// Pause is the emergency stop.
	Pause PauseState `json:"pause"`
	// Sighting is the Node as the API server shows it; nil if absent or unknown.
	Sighting *Node `json:"sighting,omitempty"`
	// Checks are the NodeHealthChecks that watch the node or have it in hand.
	Checks []Check `json:"nodeHealthChecks,omitempty"`
	// Stays are the node's stays in quarantine, the newest first.
	Stays []Stay `json:"stays,omitempty"`
	// Others are the records that took nothing out of service, grouped, the
	// newest first.
	Others []Group `json:"others,omitempty"`
	// Notes are contradictions and gaps a reader has to know of.
	Notes []string `json:"notes,omitempty"`
	// Settled are conditions of the Node that stand for faults about which nothing is
	// done, because it was decided so: that is no contradiction.
	Settled []string `json:"settled,omitempty"`

	// reportedSteps are the steps that were written, by record, while somebody follows.
	reportedSteps map[string][]Step
}

// Stay is one stay in quarantine.
type Stay struct {
	Session string    `json:"session"`
	Began   time.Time `json:"began,omitzero"`
	// Ended is zero while a fault is open.
	Ended  time.Time `json:"ended,omitzero"`
	Chains []Chain   `json:"faults"`
}

// Group is a number of records of one kind.
type Group struct {
	Text string `json:"text"`
	// Strategy is PERSIST_ONLY for records that are stored and nothing else.
	Strategy string `json:"strategy"`
	// Reason is the verdict's, "pending-evaluation", "stored only", or "Unconfirmed".
	Reason string `json:"reason"`
	// Count is of events: a record may stand for several.
	Count int       `json:"count"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	// Record is the id of the newest, Line its message.
	Record string `json:"record"`
	Line   string `json:"line"`
	// Waits is what the newest waits for, or waited; nil for all but Unconfirmed.
	Waits *Wait `json:"waits,omitempty"`
}

// Absent reports whether every source was read and none knows the node.
func (f Facts) Absent() bool {
	return f.Store.Read && f.Cluster.Read && f.Sighting == nil && len(f.Records) == 0
}

// Assemble assembles the timeline of a node.
func Assemble(f Facts) Timeline {
	f.Records = slices.Clone(f.Records)
	slices.SortStableFunc(f.Records, func(a, b record.Record) int { return cmp.Compare(a.Append, b.Append) })
	s := Timeline{Node: f.Node, At: f.Now, Sources: []Source{f.Store, f.Cluster}, Pause: f.Pause, Sighting: f.Sighting, Checks: f.Checks}
	s.Standing = standing(observation{f.Sighting, f.Cluster.Read}, f.Store.Read, f.Records)
	if f.Absent() {
		s.Standing.Reason = "the Node does not exist, and the store has no record of it"
	}
	if f.Store.Read {
		s.Stays, s.Others = stays(f), others(f.Records)
		if n := f.Sighting; n != nil && len(n.Unknown) > 0 && !slices.ContainsFunc(s.Stays, func(s Stay) bool { return s.Session == n.Session }) {
			s.Stays = append(shown(f), s.Stays...) // the Node knows more than the store
		}
	} else {
		s.Stays = shown(f)
	}
	s.Notes, s.Settled = notes(f)
	return s
}

// stays sorts the faults that were quarantined by their session.
func stays(f Facts) []Stay {
	b := newBuilder(f)
	bySession := map[string][]record.Record{}
	var order []string
	for _, r := range f.Records {
		id := r.Status.Session
		if !r.IsFault() || r.Reason() != record.Matched {
			continue
		}
		if _, ok := bySession[id]; !ok {
			order = append(order, id)
		}
		bySession[id] = append(bySession[id], r)
	}
	slices.Reverse(order)
	var out []Stay
	for _, id := range order {
		out = append(out, b.stay(id, bySession[id]))
	}
	return out
}

func (b builder) stay(session string, faults []record.Record) Stay {
	s := Stay{Session: session}
	open := false
	for _, r := range faults {
		s.Chains = append(s.Chains, b.chain(r))
		s.Began = earlier(s.Began, instant(r.Status.QuarantineFinishTimestamp))
		open = open || record.Open(r)
		for _, e := range r.Status.Faults {
			if at := instant(e.ClearedTimestamp); at.After(s.Ended) {
				s.Ended = at
			}
		}
	}
	if open {
		s.Ended = time.Time{}
	}
	return s
}

// shown is the stay that the Node itself shows, for want of what the store knows.
func shown(f Facts) []Stay {
	if f.Sighting == nil || f.Sighting.Session == "" {
		return nil
	}
	s := Stay{Session: f.Sighting.Session}
	for _, e := range f.Sighting.Active {
		s.Chains = append(s.Chains, Chain{Record: e.ID, Open: true, Steps: report(e, e.ID, time.Time{})})
	}
	if len(s.Chains) == 0 {
		s.Chains = []Chain{{Record: s.Session, Open: true}}
	}
	last := &s.Chains[len(s.Chains)-1]
	for _, o := range f.Objects {
		if o.Session != "" && o.Session != s.Session || o.Session == "" && before(o, f.Sighting.Active) {
			continue // of an earlier stay
		}
		last.Steps = append(last.Steps, Step{Kind: Repair, At: o.CreatedAt, Object: o.Kind + "/" + o.Name, Text: "uid " + o.UID})
		last.Steps = append(last.Steps, progress(o)...)
	}
	return []Stay{s}
}

// before reports whether an object ended before the first of these faults.
func before(o Object, active []record.Event) bool {
	return !o.Completed.IsZero() && len(active) > 0 && !slices.ContainsFunc(active, func(e record.Event) bool {
		return !e.GeneratedTimestamp.After(o.Completed)
	})
}

// others groups the records that took nothing out of service.
func others(records []record.Record) []Group {
	groups, newest := map[string]*Group{}, map[string]record.Record{}
	for _, r := range records {
		if r.Status.Session != "" || r.IsFault() && r.Reason() == record.Matched {
			continue
		}
		g := Group{Text: gist(r.Event), Strategy: string(r.Event.ProcessingStrategy), Reason: reason(r)}
		if r.Event.IsHealthy {
			g.Text += " healthy"
		}
		key := g.Text + "|" + g.Strategy + "|" + g.Reason
		if groups[key] == nil {
			g.First = r.CreatedAt
			groups[key] = &g
		}
		n, since := r.Event.Repeats()
		at := groups[key]
		if n > 1 && since.Before(at.First) {
			at.First = since
		}
		at.Count, at.Last, at.Record, at.Line = at.Count+n, r.CreatedAt, r.ID, r.Event.Message
		newest[key] = r
	}
	var out []Group
	for key, g := range groups {
		g.Waits = waitOf(newest[key], records)
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b Group) int { return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(b.Record, a.Record)) })
	return out
}

// pendingEvaluation is the reason of a record without a verdict.
const pendingEvaluation = "pending-evaluation"

func reason(r record.Record) string {
	_, _, waits := r.Event.Waits()
	switch {
	case waits:
		return record.Unconfirmed
	case !r.Acts():
		return "stored only"
	case !r.Evaluated():
		return pendingEvaluation
	}
	return string(r.Reason())
}

// unconfirmedAfter is how long a Ready condition is believed without a heartbeat: a kubelet
// sends one every five minutes, give or take a half.
const unconfirmedAfter = 15 * time.Minute

// notes are what does not fit together, and what is missing; settled is what stands
// because it was decided so.
func notes(f Facts) (out, settled []string) {
	note := func(to *[]string, so bool, format string, args ...any) {
		if so {
			*to = append(*to, fmt.Sprintf(format, args...))
		}
	}
	add := func(so bool, format string, args ...any) { note(&out, so, format, args...) }
	decided := map[bool]*[]string{false: &out, true: &settled}
	for _, a := range f.DeadLettered {
		add(true, "%s", a.text(f.Now))
	}
	add(f.Older, "the store has older records of this node that were not read, raise --limit to include them")
	if n := f.Sighting; n != nil {
		open := only(f.Records, record.Open)
		add(n.OptedOut, "the Node opts out by its label: new faults are not processed")
		add(n.Ready == "True" && !n.Heartbeat.IsZero() && f.Now.Sub(n.Heartbeat) > unconfirmedAfter,
			"the Node reports Ready, but its kubelet has not confirmed it since %s UTC and may be down", n.Heartbeat.Format(time.DateTime))
		l, isOffender := repeatOffenderOf(*n, f.Now)
		add(isOffender, "%s", l.text())
		by, ending := claimant(f)
		note(decided[ending], by != "", "the Node is claimed by %s", by)
		if f.Store.Read && len(open) == 0 && len(n.Unknown) == 0 {
			left := unacted(n.Conditions, f)
			for _, why := range slices.SortedFunc(maps.Keys(left), func(a, b standingFor) int { return cmp.Compare(a.text, b.text) }) {
				note(decided[why.settled], true, "the Node's conditions report %s%s", names(left[why]), why.text)
			}
		}
		for _, r := range open {
			add(n.Session != "" && r.Status.Session != n.Session, "record %s belongs to quarantine session %s, and the Node has %s", r.ID, r.Status.Session, n.Session)
			add(fault.Compare(fault.Of(r), n.Identity) == fault.AnotherMachine, "record %s is about another machine than the one that has the node name now", r.ID)
		}
		add(len(open) > 0 && n.Session == "", "the Node has no quarantine session although a fault is open")
		add(len(open) > 0 && !n.Unschedulable && len(n.Taints) == 0, "the Node is schedulable although a fault is open")
		add(n.Unschedulable && !n.ManagedCordon, "the cordon of the Node was not set by NVSentinel")
		if r := n.Restored; r != nil {
			add(true, "the node marks of the quarantine session were removed and restored %d times, the last time at %s UTC, removed by %s. To release the node, run nvsentinel release %s",
				r.Count, r.At.UTC().Format(time.DateTime), cmp.Or(r.By, "an unknown user"), n.Name)
		}
	}
	return out, settled
}

// claimant is the repair object that claims the Node; empty when there is none, or
// when an open fault asked for it, as for every repair. It is ending if it is at work still
// for a fault that is over.
func claimant(f Facts) (by string, ending bool) {
	claim := f.Sighting.Claim
	by = "the maintenance object with uid " + claim
	name, atWork := "", false
	if i := slices.IndexFunc(f.Objects, func(o Object) bool { return o.UID == claim }); i >= 0 {
		name, atWork = f.Objects[i].Name, f.Objects[i].Completed.IsZero()
		by = f.Objects[i].Kind + "/" + name
	}
	asked := func(a record.Attempt) bool { return a.UID == claim || name != "" && a.Name == name }
	asking := func(r record.Record) bool { return slices.ContainsFunc(record.Attempts(r), asked) }
	switch {
	case claim == "" || slices.ContainsFunc(only(f.Records, record.Open), asking):
		return "", false
	case atWork && slices.ContainsFunc(f.Records, asking):
		return by + ", which has not ended yet although the fault that requested it has", true
	case f.Store.Read:
		return by + ", which no open fault requested", false
	}
	return by, false
}

// standingFor is why a condition stands although no fault is open, as a note shows it.
type standingFor struct {
	text string
	// settled is true if it was decided so, and nothing is amiss.
	settled bool
}

// unacted sorts conditions by why the newest fault of their check is not open.
func unacted(conditions []Condition, f Facts) map[standingFor][]Condition {
	out := map[standingFor][]Condition{}
	for _, c := range conditions {
		why, waits := standingFor{text: unexplained}, false
		if f.Older {
			why.text = unread
		}
		for _, r := range f.Records { // the newest last, before all one that waits
			if r.IsFault() && r.Acts() && r.Event.CheckName == c.Type && (!waits || record.Pending(r)) {
				why, waits = leftAlone(r, f.Now), record.Pending(r)
			}
		}
		out[why] = append(out[why], c)
	}
	return out
}

const (
	unexplained = ", and the store has no open fault"
	unread      = ", and the store has no open fault, their evaluation is not among the records that were read"
	// The connectors write a condition after the recovery was stored, within
	// followsIn.
	conditionPendingText = ", whose recovery was stored recently and updates them shortly"
	followsIn            = time.Minute
)

// leftAlone is why a fault is not open although its condition stands.
func leftAlone(r record.Record, now time.Time) standingFor {
	switch reason := r.Reason(); reason {
	case "":
		return standingFor{text: ", not evaluated by fault-quarantine yet"}
	case record.Held:
		return standingFor{text: ", no action yet: Held (" + explain(reason) + ")"}
	case record.CoveredByReboot:
		return standingFor{text: ", no action: " + string(reason) + " (" + explain(reason) + ")"}
	case record.DryRun, record.NoRuleMatched, record.Skipped, record.OptedOut:
		return standingFor{", no action: " + string(reason) + " (" + explain(reason) + ")", true}
	default:
	}
	for _, f := range r.Status.Faults {
		switch at := instant(f.ClearedTimestamp); {
		case f.ClearedBy == record.ClearedManual:
			return standingFor{", no action: the node was released manually", true}
		case !at.IsZero() && now.Sub(at) < followsIn:
			return standingFor{text: conditionPendingText}
		}
	}
	return standingFor{text: unexplained}
}

func names(conditions []Condition) string {
	var out []string
	for _, c := range conditions {
		out = append(out, c.Type)
	}
	return strings.Join(out, ", ")
}
