package timeline

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// Fleet is how all nodes stand.
type Fleet struct {
	At      time.Time `json:"at"`
	Sources []Source  `json:"sources"`
	// Pause is the emergency stop.
	Pause PauseState `json:"pause"`
	// Counts holds every phase that can be distinguished from what was read; nodes that
	// only the store knows count too.
	Counts map[Phase]int `json:"counts"`
	// Total is the number of Nodes; -1 if they could not be read.
	Total int `json:"nodes"`
	// Rows are the nodes that something is the matter with, the most pressing
	// phase first, and within it the oldest first; held ones in the order in
	// which they will be served.
	Rows []Row `json:"rows,omitempty"`
	// RepeatOffenders are the Nodes that are marked as repeat offenders.
	RepeatOffenders []RepeatOffender `json:"repeatOffenders,omitempty"`
	// Checks are all NodeHealthChecks.
	Checks []Check `json:"nodeHealthChecks,omitempty"`
	// Runs are the runs of repair chains that are under way.
	Runs []Underway `json:"runs,omitempty"`
	// Misconfigured are runs that ended because their chain is wrong, where no newer run is.
	Misconfigured []EndedRun `json:"misconfigured,omitempty"`
	// OutcomeUnknown are runs of which nobody knows what they did to their node, where no
	// newer run is.
	OutcomeUnknown []EndedRun `json:"outcomeUnknown,omitempty"`
	// Refused are repair chains and templates that cannot be used.
	Refused []Refused `json:"refused,omitempty"`
	// Orphaned are open faults whose publisher has switched to PERSIST_ONLY.
	Orphaned []OrphanedFault `json:"orphaned,omitempty"`
	// Uncovered are GPU nodes without a live publisher.
	Uncovered []Uncovered `json:"uncovered,omitempty"`
	// Undelivered are nodes whose events do not reach the store.
	Undelivered []Undelivered `json:"undelivered,omitempty"`
	// Counted are nodes of which events are counted and not stored.
	Counted []Counted `json:"overQuota,omitempty"`
	// DeadLettered are records that killed a service and are passed over.
	DeadLettered []DeadLetter `json:"deadLettered,omitempty"`
	// Undecodable are ids of stored records that cannot be decoded: everybody goes
	// on without them.
	Undecodable []string `json:"undecodable,omitempty"`
	// DryRun is what the newest verdicts left undone; nil when none was of a dry run.
	DryRun *DryRunSummary `json:"dryRun,omitempty"`
	// Consumers are how far behind each service is.
	Consumers []Consumer `json:"consumers,omitempty"`
}

// Row is one node.
type Row struct {
	Node string `json:"node"`
	Standing
	// Turn is the place of a held node among those that wait for the budget, from 1.
	Turn int `json:"turn,omitempty"`
}

// DryRunSummary describes a fault-quarantine in dry-run mode.
type DryRunSummary struct {
	// Now is true if the newest verdict on a fault that a rule matched was one of a
	// dry run, given At.
	Now bool      `json:"now"`
	At  time.Time `json:"at"`
	// Faults of so many newest ones would have been acted upon: these Nodes would have
	// been quarantined, apart from the budget, which a dry run does not check.
	Faults int      `json:"faults"`
	Of     int      `json:"of"`
	Nodes  []string `json:"nodes"`
	// Held and Skipped count the other nodes of these faults: held back by the budget or
	// the emergency stop; left alone by the rules, the event's override or the Node's label.
	Held    int `json:"held"`
	Skipped int `json:"skipped"`
}

// summarizeDryRun looks for verdicts of a dry run among the newest.
func summarizeDryRun(newest []record.Record) *DryRunSummary {
	d := DryRunSummary{Of: len(newest)}
	var last time.Time
	would, held, skipped := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, r := range newest {
		v, node := r.Status.QuarantineVerdict, r.Event.NodeName
		if v == nil {
			continue
		}
		switch v.Reason {
		case record.DryRun:
			d.Faults++
			if v.At.After(d.At) {
				d.At = v.At
			}
			would[node] = true
		case record.Held:
			held[node] = true
		case record.NoRuleMatched, record.Skipped, record.OptedOut, record.CoveredByReboot:
			skipped[node] = true
			continue // it is evaluated alike in a dry run
		case record.Matched:
		default:
			continue
		}
		if v.At.After(last) {
			last, d.Now = v.At, v.Reason == record.DryRun
		}
	}
	if d.Faults == 0 {
		return nil
	}
	d.Nodes = slices.Sorted(maps.Keys(would))
	without := func(nodes map[string]bool, others ...map[string]bool) (n int) {
		for node := range nodes {
			if !slices.ContainsFunc(others, func(o map[string]bool) bool { return o[node] }) {
				n++
			}
		}
		return n
	}
	d.Held, d.Skipped = without(held, would), without(skipped, would, held)
	return &d
}

// omittedPhases are the phases that get no row.
var omittedPhases = map[Phase]bool{InService: true, Cordoned: true, NotReady: true}

// Survey assembles the state of the fleet.
func Survey(f FleetFacts) Fleet {
	out := Fleet{At: f.Now, Sources: []Source{f.Store, f.Cluster}, Pause: f.Pause, Counts: map[Phase]int{}, Total: -1, RepeatOffenders: repeatOffenders(f.Nodes, f.Now), Checks: f.Checks, Orphaned: f.Orphaned, Uncovered: f.Uncovered, Undelivered: undeliveredOf(f.Nodes), Counted: f.Counted, DeadLettered: f.DeadLettered, Undecodable: f.Undecodable, Consumers: f.Consumers, DryRun: summarizeDryRun(f.Newest), Runs: underway(f.Runs), Misconfigured: unrepairedBy(f.Runs, misconfigured), OutcomeUnknown: unrepairedBy(f.Runs, outcomeUnknown), Refused: f.Refused}
	if f.Cluster.Read {
		out.Total = len(f.Nodes)
	}
	nodes := map[string]*Node{}
	for i, n := range f.Nodes {
		nodes[n.Name] = &f.Nodes[i]
	}
	if f.Cluster.Read {
		out.Uncovered = slices.DeleteFunc(slices.Clone(f.Uncovered), func(u Uncovered) bool { return nodes[u.Node] == nil })
	}
	records := map[string][]record.Record{}
	for _, r := range slices.Concat(f.Open, f.Backlog) {
		name := r.Event.NodeName
		records[name] = append(records[name], r)
		if _, ok := nodes[name]; !ok {
			nodes[name] = nil
		}
	}
	for _, ph := range Phases() {
		if phaseVisible(ph, f) {
			out.Counts[ph] = 0
		}
	}
	for name, n := range nodes {
		st := standing(observation{n, f.Cluster.Read}, f.Store.Read, records[name])
		out.Counts[st.Phase]++
		if !omittedPhases[st.Phase] {
			out.Rows = append(out.Rows, Row{Node: name, Standing: st})
		}
	}
	order := Phases()
	slices.SortFunc(out.Rows, func(a, b Row) int {
		return cmp.Or(
			cmp.Compare(slices.Index(order, a.Phase), slices.Index(order, b.Phase)),
			cmp.Compare(a.turn, b.turn), a.Since.Compare(b.Since), cmp.Compare(a.Node, b.Node))
	})
	turn := 0
	for i := range out.Rows {
		if out.Rows[i].Phase == Held {
			turn++
			out.Rows[i].Turn = turn
		}
	}
	return out
}

// phaseVisible reports whether nodes in a phase would have been seen: what waits is known
// to the store only, what is well to the API server only.
func phaseVisible(ph Phase, f FleetFacts) bool {
	switch ph {
	case Held, PendingEvaluation:
		return f.Store.Read
	case InService, Cordoned, NotReady, NodeDeleted:
		return f.Cluster.Read
	case NeedsHuman, Remediating, Draining, Quarantined, Recovering, Releasing, Unknown:
	}
	return true
}

// Uncovered is a GPU node without a live publisher: no fault of it would be
// reported.
type Uncovered struct {
	Node   string    `json:"node"`
	Since  time.Time `json:"reported"`
	Why    string    `json:"why"`
	Record string    `json:"record"`
}

// uncoveredNodes are as many as are named.
const uncoveredNodes = 8

// UncoveredOf returns the nodes whose newest report is that they are uncovered, the
// oldest first; reports are those of record.Coverage, the newest first.
func UncoveredOf(reports []record.Record) (out []Uncovered) {
	seen := map[string]bool{}
	for _, r := range reports {
		if node := r.Event.NodeName; !seen[node] {
			seen[node] = true
			if !r.Event.IsHealthy {
				out = append(out, Uncovered{node, r.CreatedAt, r.Event.Message, r.ID})
			}
		}
	}
	slices.SortFunc(out, func(a, b Uncovered) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Node, b.Node)) })
	return out
}

// uncovered names the nodes of which nobody would report a fault.
func (p *page) uncovered(f Fleet) {
	const text = "! %d GPU nodes without a live publisher, their faults would not be reported: %s"
	alert(p, text, f.Uncovered, uncoveredNodes, func(u Uncovered) string {
		return fmt.Sprintf("%s (reported %s ago)", plain(u.Node), span(f.At.Sub(u.Since)))
	})
}

// Counted is what of a node's events was counted and not stored, because the node was
// beyond its quota of the day.
type Counted struct {
	Node    string    `json:"node"`
	Records int64     `json:"records"`
	Bytes   int64     `json:"bytes"`
	First   time.Time `json:"first,omitzero"`
	Last    time.Time `json:"last,omitzero"`
}

// Undelivered is a node whose connector cannot hand its events to the store.
type Undelivered struct {
	Node  string    `json:"node"`
	Since time.Time `json:"since,omitzero"`
	Why   string    `json:"why"`
}

// countedNodes and undeliveredNodes are as many as are named.
const countedNodes, undeliveredNodes = 8, 8

// counted names the nodes that bring more than their quota.
func (p *page) counted(f Fleet) {
	const text = "! %d nodes above their daily quota, events counted and not stored: %s, see docs/concepts/stores-and-gateway.md"
	alert(p, text, f.Counted, countedNodes, func(c Counted) string {
		return fmt.Sprintf("%s %d (%.1f MB, from %s to %s ago)", plain(c.Node), c.Records, float64(c.Bytes)/1e6, span(f.At.Sub(c.First)), span(f.At.Sub(c.Last)))
	})
}

// undeliveredOf returns the nodes whose connector reports undelivered events, the longest first.
func undeliveredOf(nodes []Node) (out []Undelivered) {
	for _, n := range nodes {
		for _, c := range n.Conditions {
			if c.Type == nodemark.EventDelivery {
				out = append(out, Undelivered{n.Name, c.Since, c.Message})
			}
		}
	}
	slices.SortFunc(out, func(a, b Undelivered) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Node, b.Node)) })
	return out
}

// undelivered names the nodes whose events wait.
func (p *page) undelivered(f Fleet) {
	const text = "! %d nodes with pending events that do not reach the store: %s"
	alert(p, text, f.Undelivered, undeliveredNodes, func(u Undelivered) string {
		return fmt.Sprintf("%s (for %s)", plain(u.Node), span(f.At.Sub(u.Since)))
	})
	if len(f.Undelivered) > 0 {
		p.line("%s", plain("    "+f.Undelivered[0].Node+": "+f.Undelivered[0].Why))
	}
}

// PauseState is the emergency stop, as the API server shows it.
type PauseState struct {
	// Read is true if it could be read; Problem is why not.
	Read    bool   `json:"read"`
	Problem string `json:"problem,omitempty"`
	// On is true if nothing is cordoned, evicted, repaired or signalled.
	On bool `json:"on"`
	// Since is when it was switched last, By whom and Reason why, as far as that is
	// known; By is a tool's name where no person is known.
	Since  time.Time `json:"since,omitzero"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// pause is the line of the emergency stop, when it is on or could not be read,
// or off and asked for.
func (p *page) pause(b PauseState, sources []Source, at time.Time, always bool) {
	switch {
	case !b.Read && !sources[1].Read: // the cause is shown there
		p.line("%s", p.paint(Bad, "! emergency stop UNREADABLE"))
	case !b.Read:
		p.line("%s", p.paint(Bad, "! emergency stop UNREADABLE: "+truncate(b.Problem)))
	case b.On:
		p.line("%s", p.paint(Bad, "! emergency stop ON"+p.switched(b, at)))
		p.line("  nothing is cordoned, evicted, repaired, rebooted or replaced. Recoveries and releases continue (docs/tasks/pause-remediation.md)")
	case always:
		p.line("  emergency stop OFF%s", p.switched(b, at))
	}
}

func (p *page) switched(b PauseState, at time.Time) string {
	text := ""
	if !b.Since.IsZero() {
		text = " since " + p.moment(b.Since) + " (" + span(at.Sub(b.Since)) + ")"
	}
	if b.By != "" {
		text += ", set by " + b.By
	}
	if b.Reason != "" {
		text += ": " + b.Reason
	}
	return truncate(text)
}
