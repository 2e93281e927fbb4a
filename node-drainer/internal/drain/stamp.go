package drain

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/node-drainer/plan"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// stamp writes the step's stamps in one batch of compare-and-sets; news says
// that others changed the records right after it.
func (d *Drain) stamp(ctx context.Context, node string, n *notes, sc scene, step plan.Step) (news bool, err error) {
	if len(step.Stamps) == 0 {
		return false, nil
	}
	now := d.clock.Now()
	if news, err = d.write(ctx, changes(sc.records, step, now)); err != nil {
		return news, fmt.Errorf("stamping the drain of node %s: %w", node, err)
	}
	if step.Kind == plan.Wait {
		n.reported = now
	}
	return news, nil
}

// write updates records; news says that others changed them right after it.
func (d *Drain) write(ctx context.Context, changes []store.Change) (news bool, err error) {
	for _, c := range changes {
		d.echoes.Begin(c.ID)
	}
	err = d.records.Update(ctx, record.NodeDrainer, changes)
	for _, c := range changes {
		made := "" // after a failure nobody knows
		if err == nil {
			made = revision(c.Revision + 1) // every update adds one
		}
		if d.echoes.End(c.ID, made) {
			news = true
		}
	}
	return news, err
}

func revision(n int64) string { return strconv.FormatInt(n, 10) }

// Key is the node that a delivery of the feed rings: none if it is this room's
// own stamp, on which the visit that wrote it has gone on already.
func (d *Drain) Key(r record.Record) string {
	if d.echoes.Heard(r.ID, revision(r.Revision)) {
		return ""
	}
	return r.Event.NodeName
}

// changes are the updates that a step asks for.
func changes(records []record.Record, step plan.Step, now time.Time) []store.Change {
	var out []store.Change
	for _, r := range records {
		if status, ok := step.Stamped(r, now); ok {
			out = append(out, store.Change{ID: r.ID, Revision: r.Revision, Status: status, ExpireAt: r.ExpireAt})
		}
	}
	return out
}
