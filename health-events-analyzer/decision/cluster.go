package decision

import (
	"slices"
	"strconv"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
)

// ClusterEpoch is the SeqEpoch of what rules of the cluster derive. Their events
// are counted by the nanoseconds of their times, as the outbox of one publisher,
// so that a store finds them without knowing a node.
const ClusterEpoch = record.AnalyzerAgent + "/" + string(rule.OnCluster)

// number makes an event one of the cluster's outbox.
func number(e *record.Event, seq uint64) {
	e.Metadata[record.MetadataSeq], e.Metadata[record.MetadataSeqEpoch] = strconv.FormatUint(seq, 10), ClusterEpoch
}

// NewClusterWindow makes an empty window of all nodes for these rules, all
// OnCluster. Only what it Concerns needs to be added.
func NewClusterWindow(rules []rule.Rule) *Window { return newWindow(rule.OnCluster, rules) }

// Scope returns whose events the window holds.
func (w *Window) Scope() rule.Scope { return w.scope }

// ofCluster reports whether a rule of the cluster derived the event.
func (f *Fact) ofCluster() bool {
	return f.Record.Event.Metadata[metadataScope] == string(rule.OnCluster)
}

// Touches reports whether one of the rules is asked about a fault, or looks at it.
func Touches(rules []rule.Rule, f *Fact) bool {
	return f.triggers() && slices.ContainsFunc(rules, func(r rule.Rule) bool { return f.resembles(&r.When) || f.counts(&r) })
}

// Concerns reports whether the window has any use for an event; the window of a node has for all.
func (w *Window) Concerns(f *Fact) bool {
	switch {
	case w.scope == rule.OnNode || w.byID[f.Record.ID] != nil:
		return true
	case f.Record.Event.IsHealthy:
		return w.mayEnd(f)
	case f.isDerived():
		return f.ofCluster()
	}
	return Touches(w.rules, f)
}

// mayEnd reports whether a recovery is of a check that a rule looks at, or of a
// fault in the window.
func (w *Window) mayEnd(recovery *Fact) bool {
	e := &recovery.Record.Event
	check := func(m *rule.Match) bool {
		return allows(m.Agents, e.Agent) && allows(m.Classes, e.ComponentClass) && allows(m.Checks, e.CheckName)
	}
	return !recovery.isDerived() && slices.ContainsFunc(w.rules, func(r rule.Rule) bool {
		return check(&r.When) || slices.ContainsFunc(matchesOf(&r), check)
	}) || slices.ContainsFunc(w.facts, func(f *Fact) bool {
		x := &f.Record.Event
		return x.NodeName == e.NodeName && x.CheckName == e.CheckName && x.Agent == e.Agent && !x.IsHealthy
	})
}

// Trim drops the oldest events, down to nine tenths of most, when there are more
// than that, and reports whether there were. Open derived faults and their sources
// stay.
func (w *Window) Trim(most int) bool {
	surplus := len(w.facts) - most
	if surplus <= 0 {
		return false
	}
	surplus += most / 10
	pinned := w.pinned()
	dropped := map[*Fact]bool{}
	for _, f := range w.facts {
		if len(dropped) < surplus && !pinned[f.Record.ID] {
			dropped[f] = true
		}
	}
	w.drop(func(f *Fact) bool { return dropped[f] })
	return true
}

// AwaitsSources reports whether one of a node's derived events is a fault of a cluster's
// rule that ends with its sources and has no derived recovery.
func AwaitsSources(derived []record.Record) bool {
	ended := map[string]bool{}
	for _, r := range derived {
		ended[r.Event.Metadata[metadataRecovers]] = true
	}
	return slices.ContainsFunc(derived, func(r record.Record) bool {
		f := &Fact{Record: r}
		return f.ofCluster() && !r.Event.IsHealthy && !ended[r.ID] && clearOf(f) == rule.WhenSourcesClose
	})
}
