package reconciler

import (
	"context"
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/node-drainer/decision"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// stamp writes the step's stamps in one batch of compare-and-sets; news says
// that others changed the records right after it.
func (rc *Reconciler) stamp(ctx context.Context, node string, n *notes, sc snapshot, step decision.Step) (news bool, err error) {
	if len(step.Stamps) == 0 {
		return false, nil
	}
	now := rc.clock.Now()
	if news, err = rc.records.Write(ctx, changes(sc.view.Records, step, now)); err != nil {
		return news, fmt.Errorf("stamping the drain of node %s: %w", node, err)
	}
	if step.Kind == decision.Wait {
		n.reported = now
	}
	return news, nil
}

// changes are the updates that a step asks for.
func changes(records []record.Record, step decision.Step, now time.Time) []store.Change {
	var out []store.Change
	for _, r := range records {
		if status, ok := step.Stamped(r, now); ok {
			out = append(out, store.Change{ID: r.ID, Revision: r.Revision, Status: status, ExpireAt: r.ExpireAt})
		}
	}
	return out
}
