// Package desk is fault-quarantine's handler: for one node it observes its
// records and its Node, has the ledger judge, writes the records, then the
// Node, and stamps what is done.
package desk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/budget"
	"github.com/nvidia/nvsentinel/fault-quarantine/internal/places"
	"github.com/nvidia/nvsentinel/fault-quarantine/ledger"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/fault-quarantine/ruling"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/echo"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/internal/outcome"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Nodes reads and patches Node objects.
type Nodes interface {
	// Read returns the Node; nil when it is certain not to exist.
	Read(ctx context.Context, name string) (*corev1.Node, error)
	// Patch applies mutate in one patch under the resourceVersion of before.
	Patch(ctx context.Context, before *corev1.Node, mutate func(*corev1.Node)) (*corev1.Node, error)
	// Note records a Kubernetes Event on the Node.
	Note(ctx context.Context, node *corev1.Node, e Event)
}

// Desk handles nodes one at a time each; it is safe for concurrent nodes.
type Desk struct {
	Store   store.Store
	Nodes   Nodes
	Rules   *ruling.Rules
	Painter marks.Painter
	// DryRun judges and writes verdicts, and never quarantines.
	DryRun    bool
	Retention time.Duration
	Clock     clock.PassiveClock
	Log       *slog.Logger
	Metrics   *Metrics
	// Places are those of the quarantine budget.
	Places *places.Book
	// Marked says from a cache whether a Node bears marks of ours, so that a
	// node without records and marks costs no API request. A stale no is made
	// good by the Node's own bell.
	Marked func(name string) bool

	waits  waits
	echoes echo.Book
}

// waitForNode is how long a node whose object is missing, or whose machine is
// undecidable, waits when nothing rings it.
const waitForNode = time.Minute

// waitForRoom is how long a held node waits when the budget does not ring it.
const waitForRoom = 5 * time.Minute

// waitForBudget is how long a node waits for the budget to be read.
const waitForBudget = 200 * time.Millisecond

// Handle brings one node's records and its Node up to date.
func (d *Desk) Handle(ctx context.Context, name string) error {
	err := d.handle(ctx, name)
	if !expected(err) {
		d.Places.Leave(name)
	}
	return err
}

// expected says whether the work is done or waits for something known.
func expected(err error) bool {
	_, _, wait := outcome.AsWait(err)
	_, _, park := outcome.AsPark(err)
	return err == nil || wait || park
}

func (d *Desk) handle(ctx context.Context, name string) error {
	view, node, err := d.observe(ctx, name)
	if err != nil {
		return err
	}
	if len(view.Pending)+len(view.Open) == 0 && node == nil {
		d.settle(name, ledger.Judgement{})
		d.waits.set(name, "")
		return nil
	}
	crashpoint.Here("fault-quarantine/observed")
	judgement, err := d.judge(view, node)
	if err != nil {
		return err
	}
	crashpoint.Here("fault-quarantine/decided")
	if err := d.stamp(ctx, judgement); err != nil {
		return err
	}
	crashpoint.Here("fault-quarantine/stamped")
	if node != nil {
		if err := d.mark(ctx, node, judgement); err != nil {
			return err
		}
		crashpoint.Here("fault-quarantine/done")
	}
	d.settle(name, judgement)
	return d.rest(ctx, name, node, judgement)
}

// judge has the ledger judge, with a place in the budget for a session that
// would be opened, or without.
func (d *Desk) judge(view ledger.View, node *corev1.Node) (ledger.Judgement, error) {
	now, policy := d.Clock.Now(), d.policy(node)
	judgement := ledger.Judge(view, policy, now)
	if judgement.Opens == nil {
		return judgement, nil
	}
	c := budget.Candidate{Name: node.Name, Labels: node.Labels, Order: judgement.Opens.Append}
	granted, why, err := d.Places.Take(c, judgement.Opens.ID)
	if errors.Is(err, places.ErrNotOpen) {
		return judgement, outcome.Wait(waitForBudget, err.Error())
	}
	if err != nil || granted {
		return judgement, err
	}
	policy.Hold = why
	return ledger.Judge(view, policy, now), nil
}

// settle tells the budget what became of the node.
func (d *Desk) settle(name string, j ledger.Judgement) {
	if j.Held == nil {
		d.Places.Settle(name, ledger.Session(j.Open))
	}
}

// rest says what the node waits for, and lets it go.
func (d *Desk) rest(ctx context.Context, name string, node *corev1.Node, j ledger.Judgement) error {
	if d.waits.set(name, j.Waiting) && j.Waiting != "" {
		d.Log.Warn("faults wait to be judged", "node", name, "reason", j.Waiting)
		if node != nil {
			d.Nodes.Note(ctx, node, Event{
				Warning: true, Reason: j.Waiting,
				Message: "a fault is not judged: its record names no machine and is older than this Node, so that it may be about another one",
			})
		}
	}
	switch {
	case j.Waiting != "":
		return outcome.Park(waitForNode, j.Waiting)
	case j.Held != nil:
		return outcome.Park(waitForRoom, string(record.Held))
	}
	return nil
}

// observe reads the facts of a node: its records in one query, of one moment,
// and the Node if it matters.
func (d *Desk) observe(ctx context.Context, name string) (ledger.View, *corev1.Node, error) {
	var v ledger.View
	pending, open, past := record.BacklogOfNode(name), record.OpenOfNode(name), Past(name)
	records, err := d.Store.List(ctx, store.Query{Selector: record.Selector{
		Name: "OfNode", Node: name, Any: []record.Selector{pending, open, past},
	}})
	if err != nil {
		return v, nil, fmt.Errorf("reading the records of node %s: %w", name, err)
	}
	v.Pending, v.Open, v.Past = chosen(records, pending), chosen(records, open), chosen(records, past)
	if len(v.Pending)+len(v.Open) == 0 && !d.Marked(name) {
		return v, nil, nil
	}
	node, err := d.Nodes.Read(ctx, name)
	if err != nil {
		return v, nil, fmt.Errorf("reading node %s: %w", name, err)
	}
	v.Node = nodeView(node)
	misread(&v)
	return v, node, nil
}

func chosen(records []record.Record, by record.Selector) (out []record.Record) {
	for _, r := range records {
		if by.Matches(r) {
			out = append(out, r)
		}
	}
	return out
}

// Past selects the judged recoveries of a node and its repaired records that
// are no longer open: what proves order and past boots.
func Past(name string) record.Selector {
	settled := []record.Reason{record.Cleared, record.NoOpenFault, record.Matched}
	return record.Selector{
		Name: "Past", Node: name, Strategy: record.Process, Verdicts: settled, Open: record.No(),
		Any: []record.Selector{{Healthy: record.Yes()}, {Repaired: record.Yes()}},
	}
}

func (d *Desk) policy(node *corev1.Node) ledger.Policy {
	value, known := nodeValue(node), map[string]ruling.Ruling{}
	return ledger.Policy{
		DryRun: d.DryRun, Retention: d.Retention,
		Match: func(e record.Event) ruling.Ruling {
			r, ok := known[e.ID]
			if ok {
				return r
			}
			r = d.Rules.Decide(e, value)
			known[e.ID] = r
			for _, err := range r.Errors {
				d.Metrics.RuleErrors.Inc()
				d.Log.Warn("rule not evaluated", "node", e.NodeName, "record", e.ID, "error", err)
			}
			return r
		},
	}
}

// stamp writes the judgement as one batch of compare-and-sets, within the time
// that no other replica can lead.
func (d *Desk) stamp(ctx context.Context, j ledger.Judgement) error {
	if len(j.Changed) == 0 || crashpoint.Sabotaged("fault-quarantine/skip-stamp") {
		return nil
	}
	changes := make([]store.Change, len(j.Changed))
	for i, r := range j.Changed {
		changes[i] = store.Change{ID: r.ID, Revision: r.Revision, Status: r.Status, ExpireAt: r.ExpireAt}
	}
	ctx, release := lease.Fence(ctx)
	defer release()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("writing verdicts: another replica may lead: %w", err)
	}
	if err := d.update(ctx, changes); err != nil {
		return err
	}
	for _, r := range j.Changed {
		d.Metrics.Verdicts.WithLabelValues(string(r.Reason())).Inc()
		d.Log.Info("record judged", "node", r.Event.NodeName, "record", r.ID, "verdict", r.Reason(),
			"quarantine", r.Status.NodeQuarantined, "session", r.Status.Session, "detail", r.Status.QuarantineVerdict.Detail)
	}
	return nil
}

func (d *Desk) update(ctx context.Context, changes []store.Change) error {
	err := d.Store.Update(ctx, record.FaultQuarantine, changes)
	if errors.Is(err, store.ErrConflict) {
		return outcome.Wait(0, "another writer changed a record of the node")
	}
	if err != nil {
		return fmt.Errorf("writing verdicts: %w", err)
	}
	return nil
}
