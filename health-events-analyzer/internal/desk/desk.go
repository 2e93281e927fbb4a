// Package desk is the analyzer's handler: for one node it brings its window of
// events up to date, has the rules judge, publishes what follows through the
// platform connector, and lets go.
//
// Nothing is remembered but in the store: a derived event is stored when the
// connector acknowledges it, under an id that follows from what it was derived
// from, and the feeds' positions move only after that. The windows in memory are
// a cache that can be dropped at any time.
package desk

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/pkg/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-events-analyzer/pattern"
	"github.com/nvidia/nvsentinel/health-events-analyzer/rule"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Records are the stored events.
type Records interface {
	Get(ctx context.Context, id string) (record.Record, error)
	List(ctx context.Context, q store.Query) ([]record.Record, error)
	Dead(ctx context.Context, letter store.DeadLetter) error
}

// Desk judges nodes, one at a time each; it is safe for concurrent nodes. It is
// made by New.
type Desk struct {
	Options
	nodes *nodes
}

// Options of a desk.
type Options struct {
	Records Records
	// Connector takes the derived events.
	Connector protos.PlatformConnectorClient
	Rules     []rule.Rule
	// Strategy of derived events whose rule says none.
	Strategy record.Strategy
	// CachedEvents bounds the events in memory.
	CachedEvents int
	Clock        clock.PassiveClock
	Log          *slog.Logger
	Metrics      *Metrics
}

// New makes a desk.
func New(o Options) *Desk {
	d := &Desk{Options: o, nodes: newNodes(o.CachedEvents)}
	d.Metrics.cached(d.nodes.count)
	return d
}

// Trigger takes a delivery of the faults' feed and returns the node to handle,
// or nothing.
func (d *Desk) Trigger(r record.Record) string {
	// An event for the record only never triggers a rule, whatever the feed lets
	// through.
	if !r.Acts() {
		return ""
	}
	d.Metrics.Received.WithLabelValues(string(r.Event.ProcessingStrategy)).Inc()
	d.nodes.deposit(delivery{pattern.NewFact(r), true})
	return r.Event.NodeName
}

// Cause takes a delivery of the causes' feed and returns the node to handle, or
// nothing.
func (d *Desk) Cause(r record.Record) string {
	d.nodes.deposit(delivery{pattern.NewFact(r), false})
	return r.Event.NodeName
}

// Handle judges one node's news.
func (d *Desk) Handle(ctx context.Context, name string) error {
	n := d.nodes.enter(name)
	defer d.nodes.leave(n)
	fresh := n.window == nil
	if fresh {
		w, err := d.read(ctx, name)
		if err != nil {
			return err
		}
		n.window = w
	}
	for _, x := range d.nodes.news(n) {
		from, changed := n.window.Add(x.Fact)
		if !changed && (fresh || x.trigger) && !n.window.Settled(x.Record.ID) {
			// The store had it already; nobody knows whether it was judged.
			from, changed = x.Matters()
		}
		if changed {
			n.since(from)
		}
	}
	crashpoint.Here(record.AnalyzerAgent + "/observed")
	if err := d.judge(ctx, n); err != nil {
		return err
	}
	if err := d.clear(ctx, n); err != nil {
		return err
	}
	crashpoint.Here(record.AnalyzerAgent + "/done")
	n.window.Prune(d.Clock.Now())
	return nil
}

// judge publishes the faults that the rules derive from the node's news.
func (d *Desk) judge(ctx context.Context, n *node) error {
	if !n.changed {
		return nil
	}
	for _, f := range n.window.Judge(n.from, d.Clock.Now()) {
		if f.Reason == pattern.Matched {
			if err := d.derive(ctx, n, f); err != nil {
				return err
			}
		}
		d.Metrics.Judgements.WithLabelValues(f.Rule.Name, string(f.Reason)).Inc()
	}
	n.window.Settle(n.from)
	n.changed = false
	return nil
}

func (d *Desk) derive(ctx context.Context, n *node, f pattern.Finding) error {
	e := f.Event(d.Strategy)
	crashpoint.Here(record.AnalyzerAgent + "/decided")
	if err := d.publish(ctx, e); err != nil {
		return err
	}
	n.window.Add(pattern.NewFact(record.Record{ID: e.ID, Event: e}))
	d.Log.Info("rule matched", "node", e.NodeName, "rule", e.CheckName, "subject", f.Subject, "record", e.ID,
		"sources", len(f.Sources), "strategy", e.ProcessingStrategy)
	return nil
}

// clear publishes the recoveries of derived faults whose causes are over.
func (d *Desk) clear(ctx context.Context, n *node) error {
	for _, id := range n.window.Unknown() {
		if err := d.lookUp(ctx, n.window, id); err != nil {
			return err
		}
	}
	for _, c := range n.window.Clearings() {
		e := c.Event()
		if err := d.publish(ctx, e); err != nil {
			return err
		}
		n.window.Add(pattern.NewFact(record.Record{ID: e.ID, Append: afterAll, Event: e}))
		d.Log.Info("causes are over", "node", e.NodeName, "rule", e.CheckName, "record", c.Fault.Record.ID)
	}
	return nil
}

// afterAll stands for the place of a recovery that is stored, and not delivered
// yet: behind its fault.
const afterAll = 1<<63 - 1

// read fills a window from the store.
func (d *Desk) read(ctx context.Context, name string) (*pattern.Window, error) {
	w := pattern.NewWindow(d.Rules)
	known, err := d.history(ctx, name)
	if err != nil {
		return nil, err
	}
	published, err := d.list(ctx, store.Query{Selector: record.Selector{Name: "Derived", Node: name, Agent: record.AnalyzerAgent}})
	if err != nil {
		return nil, err
	}
	slices.Reverse(known)
	for _, r := range append(known, published...) {
		w.Add(pattern.NewFact(r))
	}
	return w, nil
}

// pages of a node's history: the first, and the most that is read.
const (
	firstPage = 32
	lastPage  = 1 << 16
)

// history is the newest records of a node, as far back as the longest rule
// looks. It asks for more until it has them, so that the cost follows what is in
// the window and not what is in the store.
func (d *Desk) history(ctx context.Context, name string) ([]record.Record, error) {
	begin := d.Clock.Now().Add(-rule.Longest(d.Rules) - time.Hour)
	for limit := firstPage; ; limit *= 4 {
		known, err := d.list(ctx, store.Query{Selector: record.Selector{Name: "Window", Node: name}, Order: store.ByAppendDescending, Limit: limit})
		if err != nil {
			return nil, err
		}
		if len(known) < limit || known[len(known)-1].CreatedAt.Before(begin) {
			return known, nil
		}
		if limit >= lastPage {
			d.Metrics.Truncated.Inc()
			d.Log.Warn("a node has more events than a window holds; the oldest are left out", "node", name, "events", limit)
			return known, nil
		}
	}
}

func (d *Desk) list(ctx context.Context, q store.Query) ([]record.Record, error) {
	known, err := d.Records.List(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("reading records (%s) of node %s: %w", q.Selector.Name, q.Selector.Node, err)
	}
	return known, nil
}
