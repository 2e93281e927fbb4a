// Package matching matches rules with the events of nodes: for one node it brings its
// window of events up to date, evaluates the rules, publishes what follows through the
// platform connector, and releases the node. Where there are rules of the cluster, it does
// the same with the one window of all nodes after that, for the node's news.
//
// Nothing is remembered but in the store: a derived event is stored when the
// connector acknowledges it, under an id that follows from what it was derived
// from, and the feeds' positions move only after that. The windows in memory are
// a cache that can be dropped at any time.
package matching

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-events-analyzer/decision"
	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Records are the stored events.
type Records interface {
	Get(ctx context.Context, id string) (record.Record, error)
	List(ctx context.Context, q store.Query) ([]record.Record, error)
	Dead(ctx context.Context, deadLetter store.DeadLetter) error
}

// Matcher evaluates the events of nodes, one call at a time for each node; calls for
// different nodes may be concurrent. It is made by New.
type Matcher struct {
	Options
	nodes *nodes
	rules atomic.Pointer[ruleSet]
	// places counts the events that were published.
	places atomic.Int64
}

// ruleSet is the active rules, by their scope.
type ruleSet struct{ ofNodes, ofCluster []rule.Rule }

// Options of a Matcher.
type Options struct {
	Records Records
	// Connector takes the derived events.
	Connector protos.PlatformConnectorClient
	Rules     []rule.Rule
	// Strategy of derived events whose rule states none.
	Strategy record.Strategy
	// CachedEvents bounds the events in memory.
	CachedEvents int
	Clock        clock.PassiveClock
	Log          *slog.Logger
	Metrics      *Metrics
}

// New makes a Matcher.
func New(o Options) *Matcher {
	d := &Matcher{Options: o, nodes: newNodes(o.CachedEvents)}
	d.Use(o.Rules)
	d.Metrics.cached(d.nodes.count)
	return d
}

// Use replaces all rules: from then on they evaluate the news, in windows that are read for
// them. Faults that earlier rules have derived end as those faults state themselves.
func (m *Matcher) Use(rules []rule.Rule) {
	set := &ruleSet{rule.OnNode.Of(rules), rule.OnCluster.Of(rules)}
	if reflect.DeepEqual(set, m.rules.Load()) {
		return // the windows are those for them
	}
	m.Metrics.know(rules)
	m.rules.Store(set)
	if len(set.ofCluster) > 0 {
		m.nodes.sharing.Store(true)
	}
}

// factOf takes what matters out of a record.
func factOf(r record.Record) *decision.Fact {
	crashpoint.DieOf(r.Event.Message)
	return decision.NewFact(r)
}

// Try computes what handling computes of one record alone, and forgets it: if that
// kills the process, the record does.
func (m *Matcher) Try(_ context.Context, r record.Record) {
	set := m.rules.Load()
	for _, w := range []*decision.Window{decision.NewWindow(set.ofNodes), decision.NewClusterWindow(set.ofCluster)} {
		f := factOf(r)
		if from, changed := w.Add(f); changed {
			w.Evaluate(from, m.Clock.Now())
		}
	}
}

// Trigger takes a delivery of the faults' feed and returns the node to handle,
// or nothing.
func (m *Matcher) Trigger(r record.Record) string {
	// An event for the record only never triggers a rule, whatever the feed lets
	// through.
	if !r.Acts() {
		return ""
	}
	m.Metrics.Received.WithLabelValues(string(r.Event.ProcessingStrategy)).Inc()
	f := factOf(r)
	shared := m.nodes.sharing.Load() && decision.Touches(m.rules.Load().ofCluster, f)
	m.nodes.deposit(delivery{f, true})
	if shared {
		m.nodes.share(delivery{factOf(r), true})
	}
	return r.Event.NodeName
}

// Cause takes a delivery of the causes' feed and returns the node to handle, or
// nothing.
func (m *Matcher) Cause(r record.Record) string {
	m.nodes.deposit(delivery{factOf(r), false})
	if m.nodes.sharing.Load() {
		m.nodes.share(delivery{factOf(r), false})
	}
	return r.Event.NodeName
}

// Handle evaluates one node's news.
func (m *Matcher) Handle(ctx context.Context, name string) error {
	err := m.work(ctx, m.nodes.enter(name), func(set *ruleSet) (*decision.Window, error) { return m.read(ctx, name, set) })
	if err != nil {
		return err
	}
	return m.handleCluster(ctx, name)
}

// work brings a window up to date, publishes what follows, and leaves it.
func (m *Matcher) work(ctx context.Context, n *node, read func(*ruleSet) (*decision.Window, error)) error {
	defer m.nodes.leave(n)
	set := m.rules.Load()
	fresh := n.window == nil || n.rules != set
	if fresh {
		w, err := read(set)
		if err != nil {
			return err
		}
		n.window, n.rules = w, set
	}
	for _, x := range m.nodes.takePending(n) {
		if !n.window.Concerns(x.Fact) {
			continue
		}
		from, changed := n.window.Add(x.Fact)
		if !changed && (fresh || x.trigger) && !n.window.Settled(x.Record.ID) {
			// The store had it already; nobody knows whether it was evaluated.
			from, changed = x.Matters()
		}
		if changed {
			n.since(from)
		}
	}
	crashpoint.Here(record.AnalyzerAgent + "/observed")
	if err := m.evaluate(ctx, n); err != nil {
		return err
	}
	if err := m.clear(ctx, n); err != nil {
		return err
	}
	crashpoint.Here(record.AnalyzerAgent + "/done")
	n.window.Prune(m.Clock.Now())
	if n.window.Scope() == rule.OnCluster {
		m.trim(n.window)
	}
	return nil
}

// evaluate publishes the faults that the rules derive from the node's news.
func (m *Matcher) evaluate(ctx context.Context, n *node) error {
	if !n.changed {
		return nil
	}
	for _, f := range n.window.Evaluate(n.from, m.Clock.Now()) {
		if f.Reason == decision.Matched {
			if err := m.derive(ctx, n, f); err != nil {
				return err
			}
		}
		m.Metrics.Evaluations.WithLabelValues(f.Rule.Name, string(f.Reason)).Inc()
	}
	n.window.Settle(n.from)
	n.changed = false
	return nil
}

func (m *Matcher) derive(ctx context.Context, n *node, f decision.Finding) error {
	e := f.Event(m.Strategy)
	crashpoint.Here(record.AnalyzerAgent + "/decided")
	if err := m.publish(ctx, e); err != nil {
		return err
	}
	n.window.Add(m.published(e))
	m.Log.Info("rule matched", "node", e.NodeName, "rule", e.CheckName, "subject", f.Subject, "record", e.ID,
		"sources", len(f.Sources), "strategy", e.ProcessingStrategy)
	return nil
}

// clear publishes the recoveries of derived faults whose causes are over.
func (m *Matcher) clear(ctx context.Context, n *node) error {
	for _, id := range n.window.Unknown() {
		if err := m.lookUp(ctx, n.window, id); err != nil {
			return err
		}
	}
	for _, c := range n.window.Clearings() {
		e := c.Event()
		if err := m.publish(ctx, e); err != nil {
			return err
		}
		n.window.Add(m.published(e))
		m.Log.Info("causes recovered", "node", e.NodeName, "rule", e.CheckName, "record", c.Fault.Record.ID)
	}
	return nil
}

// undelivered is where the places of events begin that are stored, and not delivered
// yet: behind all that was, in the order in which they were published.
const undelivered = 1 << 62

// published returns the fact of a derived event that was acknowledged, and not delivered yet.
func (m *Matcher) published(e record.Event) *decision.Fact {
	r := record.Record{ID: e.ID, Append: undelivered + m.places.Add(1), Event: e}
	r.Seq, r.SeqEpoch, _ = e.Seq()
	return factOf(r)
}

// read fills a node's window from the store.
func (m *Matcher) read(ctx context.Context, name string, set *ruleSet) (*decision.Window, error) {
	w := decision.NewWindow(set.ofNodes)
	known, err := m.history(ctx, name, m.begin(set.ofNodes))
	if err != nil {
		return nil, err
	}
	derived, err := m.list(ctx, store.Query{Selector: record.Selector{Name: "Derived", Node: name, Agent: record.AnalyzerAgent}})
	if err != nil {
		return nil, err
	}
	for _, f := range slices.Backward(known) {
		w.Add(f)
	}
	for _, r := range derived {
		w.Add(factOf(r))
	}
	// The rule may be gone from the file, with its fault still open.
	if decision.AwaitsSources(derived) {
		m.nodes.wake(name)
	}
	return w, nil
}

// begin is how far back a window of these rules is read.
func (m *Matcher) begin(rules []rule.Rule) time.Time {
	return m.Clock.Now().Add(-rule.Longest(rules) - time.Hour)
}

// pages of a node's history: the first, the largest, and the most that is read.
const (
	firstPage   = 32
	largestPage = 512
	lastPage    = 1 << 16
)

// history is the newest records of a node, as far back as the longest rule
// looks, the newest first.
func (m *Matcher) history(ctx context.Context, name string, begin time.Time) (known []*decision.Fact, err error) {
	err = m.backwards(ctx, name, begin, func(page []record.Record, last bool) error {
		for _, r := range page {
			known = append(known, factOf(r))
		}
		if last || len(known) < lastPage {
			return nil
		}
		m.Metrics.Truncated.Inc()
		m.Log.Warn("node window exceeded, oldest events left out", "node", name, "events", len(known))
		return store.Enough
	})
	return known, enough(err)
}

// enough takes the word that ends a reading early for no failure.
func enough(err error) error {
	if errors.Is(err, store.Enough) {
		return nil
	}
	return err
}

// mostTried bounds the records of a node that are tried one by one: each is noted
// in the store before.
const mostTried = 4096

// Recent visits the newest records of a node, as far back as the longest rule
// looks.
func (m *Matcher) Recent(ctx context.Context, name string, each func(record.Record) error) error {
	left := mostTried
	return enough(m.backwards(ctx, name, m.begin(m.rules.Load().ofNodes), func(page []record.Record, _ bool) error {
		for _, r := range page {
			if left--; left < 0 {
				return store.Enough
			}
			if err := each(r); err != nil {
				return err
			}
		}
		return nil
	}))
}

// backwards reads the newest records of a node, those since a time, page by page,
// the newest first. It asks for more until it has them, so that the cost follows
// what is in the window and not what is in the store.
func (m *Matcher) backwards(ctx context.Context, name string, begin time.Time, each func(page []record.Record, last bool) error) error {
	more := false
	q := store.Query{Selector: record.Selector{Name: "Window", Node: name}, Order: store.ByAppendDescending, More: &more}
	for q.Limit = firstPage; ; q.Limit = min(4*q.Limit, largestPage) {
		page, err := m.list(ctx, q)
		if err != nil {
			return err
		}
		last := !more || len(page) == 0 || page[len(page)-1].CreatedAt.Before(begin)
		if err := each(page, last); err != nil || last {
			return err
		}
		q.After = page[len(page)-1].Append
	}
}

func (m *Matcher) list(ctx context.Context, q store.Query) ([]record.Record, error) {
	known, err := m.Records.List(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("reading records (%s) of node %q: %w", q.Selector.Name, q.Selector.Node, err)
	}
	return known, nil
}
