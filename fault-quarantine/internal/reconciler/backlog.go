package reconciler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/budget"
	"github.com/nvidia/nvsentinel/fault-quarantine/internal/quota"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Backlog reads the open sessions and the held nodes for the budget, opens it,
// and enqueues every node with unevaluated, Held or open records.
//
// The faults without a final verdict are touched first: a replica that led
// before, and was frozen between taking a place and writing it down, then finds
// another revision and writes nothing. What it had written before stands among
// the open records, which are read after that.
func (rc *Reconciler) Backlog(ctx context.Context, enqueue func(string)) error {
	var names []string
	waiting := map[string]quota.Waiter{}
	err := rc.pages(ctx, record.BacklogOfNode(""), func(page []record.Record) error {
		for _, r := range page {
			names = append(names, r.Event.NodeName)
			queue(waiting, r)
		}
		return rc.touch(ctx, page)
	})
	if err != nil {
		return err
	}
	taken := map[string]quota.Session{}
	err = rc.pages(ctx, record.OpenOfNode(""), func(page []record.Record) error {
		for _, r := range page {
			names = append(names, r.Event.NodeName)
			seat(taken, r)
		}
		return nil
	})
	if err != nil {
		return err
	}
	rc.Quota.Open(values(taken), values(waiting))
	for _, name := range names {
		enqueue(name)
	}
	return nil
}

// touch gives the faults of a page another revision. A record that got one
// meanwhile from somebody else needs no touch; nor does one that this version never
// evaluates.
func (rc *Reconciler) touch(ctx context.Context, page []record.Record) error {
	var changes []store.Change
	for _, r := range page {
		if r.IsFault() && record.NeedsNewer(r) == "" {
			changes = append(changes, store.Change{ID: r.ID, Revision: r.Revision, Status: r.Status})
		}
	}
	for batch := range slices.Chunk(changes, maxBatch) {
		if err := rc.touchBatch(ctx, batch); err != nil {
			return fmt.Errorf("updating the records of the backlog: %w", err)
		}
	}
	return nil
}

func (rc *Reconciler) touchBatch(ctx context.Context, changes []store.Change) error {
	_, err := rc.Store.Update(ctx, record.FaultQuarantine, changes)
	if !errors.Is(err, store.ErrConflict) {
		return err
	}
	for _, c := range changes {
		_, err := rc.Store.Update(ctx, record.FaultQuarantine, []store.Change{c})
		if err != nil && !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return nil
}

// queue puts the node of a Held fault into the queue, at its oldest fault.
func queue(waiting map[string]quota.Waiter, r record.Record) {
	if r.Reason() != record.Held {
		return
	}
	if w, known := waiting[r.Event.NodeName]; !known || r.Append < w.Order {
		c := budget.Candidate{Name: r.Event.NodeName, Order: r.Append}
		waiting[r.Event.NodeName] = quota.Waiter{Candidate: c, Since: r.Status.QuarantineVerdict.At}
	}
}

// seat gives the session of an open record its place, from its first verdict on.
func seat(taken map[string]quota.Session, r record.Record) {
	at := time.Time{}
	if v := r.Status.QuarantineVerdict; v != nil {
		at = v.At
	}
	if p, known := taken[r.Event.NodeName]; !known || at.Before(p.Began) {
		taken[r.Event.NodeName] = quota.Session{Node: r.Event.NodeName, Session: r.Status.Session, Began: at}
	}
}

func values[V any](m map[string]V) []V {
	out := make([]V, 0, len(m))
	for _, v := range m {
		out = append(out, v)
	}
	return out
}
