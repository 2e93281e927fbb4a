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
	"github.com/nvidia/nvsentinel/fault-quarantine/ledger"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/fault-quarantine/ruling"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
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
	Note(ctx context.Context, node *corev1.Node, reason, message string)
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
	// Marked says from a cache whether a Node bears marks of ours, so that a
	// node without records and marks costs no API request. A stale no is made
	// good by the Node's own bell.
	Marked func(name string) bool
}

// waitForNode is how long a node whose object is missing, or whose machine is
// undecidable, waits when nothing rings it.
const waitForNode = time.Minute

// Handle brings one node's records and its Node up to date.
func (d *Desk) Handle(ctx context.Context, name string) error {
	view, node, err := d.observe(ctx, name)
	if err != nil {
		return err
	}
	if len(view.Pending)+len(view.Open) == 0 && node == nil {
		return nil
	}
	crashpoint.Here("fault-quarantine/observed")
	judgement := ledger.Judge(view, d.policy(node), d.Clock.Now())
	crashpoint.Here("fault-quarantine/decided")
	if err := d.stamp(ctx, judgement); err != nil {
		return err
	}
	crashpoint.Here("fault-quarantine/stamped")
	if node != nil {
		if err := d.mark(ctx, node, judgement.Open); err != nil {
			return err
		}
		crashpoint.Here("fault-quarantine/done")
	}
	if judgement.Waiting != "" {
		return outcome.Park(waitForNode, judgement.Waiting)
	}
	return nil
}

func (d *Desk) observe(ctx context.Context, name string) (ledger.View, *corev1.Node, error) {
	var v ledger.View
	for _, q := range []struct {
		into     *[]record.Record
		selector record.Selector
	}{
		{&v.Pending, record.BacklogOfNode(name)},
		{&v.Open, record.OpenOfNode(name)},
		{&v.Past, past(name)},
	} {
		records, err := d.Store.List(ctx, store.Query{Selector: q.selector})
		if err != nil {
			return v, nil, fmt.Errorf("reading records (%s) of node %s: %w", q.selector.Name, name, err)
		}
		*q.into = records
	}
	if len(v.Pending)+len(v.Open) == 0 && !d.Marked(name) {
		return v, nil, nil
	}
	node, err := d.Nodes.Read(ctx, name)
	if err != nil {
		return v, nil, fmt.Errorf("reading node %s: %w", name, err)
	}
	v.Node = nodeView(node)
	if v.Node != nil && crashpoint.Sabotaged("fault-quarantine/ignore-machine") {
		for _, list := range [][]record.Record{v.Pending, v.Open, v.Past} {
			for i := range list {
				list[i].Node = v.Node.Identity
			}
		}
	}
	return v, node, nil
}

// past selects the judged recoveries of a node and its repaired records that
// are no longer open: what proves order and past boots.
func past(name string) record.Selector {
	settled := []record.Reason{record.Cleared, record.NoOpenFault, record.Matched}
	return record.Selector{
		Name: "Past", Node: name, Strategy: record.Process, Verdicts: settled, Open: record.No(),
		Any: []record.Selector{{Healthy: record.Yes()}, {Repaired: record.Yes()}},
	}
}

func (d *Desk) policy(node *corev1.Node) ledger.Policy {
	value := nodeValue(node)
	return ledger.Policy{
		DryRun: d.DryRun, Retention: d.Retention,
		Match: func(e record.Event) ruling.Ruling {
			r := d.Rules.Decide(e, value)
			for _, err := range r.Errors {
				d.Metrics.RuleErrors.Inc()
				d.Log.Warn("rule not evaluated", "node", e.NodeName, "record", e.ID, "error", err)
			}
			return r
		},
	}
}

// stamp writes the judgement as one batch of compare-and-sets.
func (d *Desk) stamp(ctx context.Context, j ledger.Judgement) error {
	if len(j.Changed) == 0 || crashpoint.Sabotaged("fault-quarantine/skip-stamp") {
		return nil
	}
	changes := make([]store.Change, len(j.Changed))
	for i, r := range j.Changed {
		changes[i] = store.Change{ID: r.ID, Revision: r.Revision, Status: r.Status, ExpireAt: r.ExpireAt}
	}
	if err := d.update(ctx, changes); err != nil {
		return err
	}
	for _, r := range j.Changed {
		d.Metrics.Verdicts.WithLabelValues(string(r.Reason())).Inc()
		d.Log.Info("record judged", "node", r.Event.NodeName, "record", r.ID, "verdict", r.Reason(),
			"quarantine", r.Status.NodeQuarantined, "session", r.Status.Session)
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

// mark brings the Node to what its open records ask for, then stamps the
// records whose quarantine is finished by that.
func (d *Desk) mark(ctx context.Context, node *corev1.Node, open []record.Record) error {
	desired := marks.Of(open)
	if desired.Session == "" && (!marks.Bears(node) || crashpoint.Sabotaged("fault-quarantine/skip-release")) {
		return nil
	}
	now := d.Clock.Now()
	before := marks.Session(node)
	after, err := d.Nodes.Patch(ctx, node, func(n *corev1.Node) { d.Painter.Apply(n, desired, now) })
	if err != nil {
		return fmt.Errorf("marking node %s: %w", node.Name, err)
	}
	d.note(ctx, after, before, desired)
	return d.finish(ctx, open, now)
}

func (d *Desk) note(ctx context.Context, node *corev1.Node, before string, desired marks.Desired) {
	switch {
	case before == desired.Session:
	case desired.Session != "":
		d.Metrics.Quarantined.Inc()
		d.Nodes.Note(ctx, node, "NodeQuarantined", "session "+desired.Session+" opened")
	default:
		d.Metrics.Released.Inc()
		d.Nodes.Note(ctx, node, "NodeReleased", "session "+before+" ended: no fault is open")
	}
}

// finish stamps when the Node was seen to bear the marks of a record. The
// records were just written, so their revisions are read again.
func (d *Desk) finish(ctx context.Context, open []record.Record, now time.Time) error {
	var changes []store.Change
	for _, o := range open {
		if o.Status.QuarantineFinishTimestamp != nil {
			continue
		}
		r, err := d.Store.Get(ctx, o.ID)
		if err != nil {
			return fmt.Errorf("reading record %s: %w", o.ID, err)
		}
		if r.Status.QuarantineFinishTimestamp == nil && record.Open(r) {
			r.Status.QuarantineFinishTimestamp = &now
			changes = append(changes, store.Change{ID: r.ID, Revision: r.Revision, Status: r.Status, ExpireAt: r.ExpireAt})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	return d.update(ctx, changes)
}
