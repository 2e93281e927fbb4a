package reconciler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/decision"
	"github.com/nvidia/nvsentinel/store-client/store"
)

const (
	// maxPendingPerPass bounds the unevaluated records of a node that one look evaluates, and
	// store.PageBytes does: a pile is evaluated in several looks, oldest first.
	maxPendingPerPass = 1000
	// maxBatch bounds what is written in one transaction: as much as a database
	// takes in one statement, since a distant one is asked five times for each.
	maxBatch = 500
	// maxFullBytes bounds the open faults of a node that a look holds whole, in bytes of
	// memory, about; of the others it holds what the evaluation needs of them.
	maxFullBytes = 32 << 20
	// condensedBatch is maxBatch where records have to be read whole to be written.
	condensedBatch = 16
)

// facts are what one look at a node sees.
type facts struct {
	view   decision.View
	node   *corev1.Node
	policy decision.Policy
	// after is the record after which the unevaluated ones were read, or 0.
	after int64
	// more is whether further unevaluated records wait.
	more bool
}

// pass reports whether one look does not see all that waits.
func (f facts) pass() bool { return f.more || f.after > 0 }

// observe reads the facts of a node: its records, the Node if it matters, and
// of the past what can change the evaluation.
func (rc *Reconciler) observe(ctx context.Context, name string) (facts, error) {
	seen, err := rc.present(ctx, name)
	if err != nil {
		return seen, fmt.Errorf("reading the records of node %s: %w", name, err)
	}
	var cached *corev1.Node
	if rc.Cached != nil {
		cached = rc.Cached(name)
	}
	switch decision.Needs(seen.view, nodeView(cached), rc.Marked(name)).Node {
	case decision.Nowhere:
		return seen, nil
	case decision.Cache:
		seen.node = cached
	case decision.Server:
		if seen.node, err = rc.Nodes.Read(ctx, name); err != nil {
			return seen, fmt.Errorf("reading node %s: %w", name, err)
		}
	}
	seen.view.Name = name
	seen.view.Node, seen.policy = nodeView(seen.node), rc.policy(seen.node)
	reads := decision.Needs(seen.view, seen.view.Node, true)
	if seen.view.Past, err = rc.past(ctx, seen, reads); err != nil {
		return seen, fmt.Errorf("reading the history of node %s: %w", name, err)
	}
	if seen.view.Named, err = rc.named(ctx, seen.view, reads); err != nil {
		return seen, fmt.Errorf("reading the quarantine session of node %s: %w", name, err)
	}
	return seen, nil
}

// named reads the records that the Node names and that are neither pending nor
// open, and one of its session: a release needs them.
func (rc *Reconciler) named(ctx context.Context, v decision.View, reads decision.Reads) (out []record.Record, err error) {
	if len(reads.Named) == 0 && !reads.Session {
		return nil, nil
	}
	known, session := map[string]bool{}, !reads.Session
	for _, r := range slices.Concat(v.Pending, v.Open) {
		known[r.ID] = true
	}
	var lost []record.Record
	for _, a := range reads.Named {
		r, err := store.FindOf(ctx, rc.Store, v.Name, a.ID)
		if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrUndecodable) {
			lost = append(lost, a)
			continue
		}
		if err != nil {
			return nil, err
		}
		if session = session || r.Status.Session == v.Node.Session; !known[r.ID] {
			out = append(out, r)
		}
	}
	since, err := rc.since(ctx, v.Name, lost)
	if out = append(out, since...); err != nil || session {
		return out, err
	}
	ofSession := record.Selector{Name: "Session", Node: v.Name, Session: v.Node.Session}
	one, err := rc.Store.List(ctx, store.Query{Selector: ofSession, Limit: 1})
	return append(out, one...), err
}

// since reads the recoveries that later events of their publishers hold for
// faults that only the Node knows.
func (rc *Reconciler) since(ctx context.Context, name string, lost []record.Record) ([]record.Record, error) {
	back := history{reconciler: rc, recoveries: Past(name), fresh: cases(lost)}
	back.recoveries.Healthy = record.Yes()
	seen := map[publisher]bool{{}: true}
	for _, r := range lost {
		p := publisher{r.Event.Agent, r.SeqEpoch}
		if p.epoch == "" || seen[p] {
			continue
		}
		seen[p] = true
		own := back.recoveries
		own.Agent, own.SeqEpoch = p.agent, p.epoch
		if err := back.scan(ctx, own, 0); err != nil {
			return nil, err
		}
	}
	return back.found, nil
}

// present reads the records without a final verdict, and the open ones: in one query,
// of one moment, if they are not many. Else a record is read before what another
// replica may make of it meanwhile, so that none is missed.
func (rc *Reconciler) present(ctx context.Context, name string) (facts, error) {
	var seen facts
	pending, open := record.BacklogOfNode(name), record.OpenOfNode(name)
	after, deep := rc.cursors.begin(name)
	if !deep || after > 0 {
		all, more, err := rc.some(ctx, Present(name), 0)
		if err != nil {
			return seen, err
		}
		if !more {
			rc.cursors.end(name)
			seen.view.Pending, seen.view.Open = chosen(all, pending), chosen(all, open)
			return seen, nil
		}
	}
	rc.cursors.skip(name, after)
	unjudged, more, err := rc.some(ctx, evaluatedAs(pending, ""), after)
	if err != nil {
		return seen, err
	}
	held, err := rc.all(ctx, evaluatedAs(pending, record.Held))
	if err != nil {
		return seen, err
	}
	seen.view.Pending, seen.after, seen.more = append(held, unjudged...), after, more
	if !seen.pass() {
		rc.cursors.end(name)
	}
	seen.view.Open, seen.view.Condensed, err = rc.open(ctx, open, decision.Recoveries(seen.view.Pending))
	return seen, err
}

// some reads as many records as one look takes, and reports whether more may follow.
func (rc *Reconciler) some(ctx context.Context, s record.Selector, after int64) (page []record.Record, more bool, err error) {
	page, err = rc.Store.List(ctx, store.Query{Selector: s, After: after, Limit: maxPendingPerPass, More: &more})
	return page, more, err
}

// Present selects the records of a node without a final verdict, and the open ones.
func Present(name string) record.Selector {
	return record.Selector{Name: "OfNode", Node: name, Any: []record.Selector{record.BacklogOfNode(name), record.OpenOfNode(name)}}
}

func evaluatedAs(s record.Selector, reasons ...record.Reason) record.Selector {
	s.Verdicts = reasons
	return s
}

func (rc *Reconciler) all(ctx context.Context, s record.Selector) (out []record.Record, err error) {
	err = rc.pages(ctx, s, func(page []record.Record) error {
		out = append(out, page...)
		return nil
	})
	return out, err
}

func chosen(records []record.Record, by record.Selector) (out []record.Record) {
	for _, r := range records {
		if by.Matches(r) {
			out = append(out, r)
		}
	}
	return out
}

func (rc *Reconciler) pages(ctx context.Context, selector record.Selector, each func([]record.Record) error) error {
	return rc.pagesAfter(ctx, selector, 0, each)
}

func (rc *Reconciler) pagesAfter(ctx context.Context, selector record.Selector, after int64, each func([]record.Record) error) error {
	if err := store.Pages(ctx, rc.Store, store.Query{Selector: selector, After: after}, each); err != nil {
		return fmt.Errorf("reading records (%s): %w", selector.Name, err)
	}
	return nil
}

// cursors has the nodes with more unevaluated records than one look takes, and after
// which of them the next look begins.
type cursors struct {
	mu   sync.Mutex
	from map[string]int64
}

// begin returns after which record the look at a node begins, and whether the one
// before could not see all.
func (c *cursors) begin(name string) (after int64, deep bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	after, deep = c.from[name]
	return after, deep
}

// skip has the next look at a node, which cannot see all either, begin after a
// record; 0 is the start.
func (c *cursors) skip(name string, after int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.from == nil {
		c.from = map[string]int64{}
	}
	c.from[name] = after
}

// end has the next look at a node see all of it, if it can.
func (c *cursors) end(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.from, name)
}
