package reconciler

import (
	"context"
	"errors"
	"fmt"

	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// stamp writes a step's record changes, which the facts show then. quiet says that
// they are all that is new about these records. A conflict is no error: the facts
// are read again and decided anew.
func (d *Reconciler) stamp(ctx context.Context, f *facts, step decision.Step) (quiet bool, err error) {
	var changes []store.Change
	for _, w := range step.Writes {
		changes = append(changes, store.Change{ID: w.ID, Revision: w.Revision, Status: w.Status, ExpireAt: w.ExpireAt})
	}
	d.announce(ctx, f, step)
	news, err := d.Records.Write(ctx, changes)
	if errors.Is(err, store.ErrConflict) {
		return false, nil
	}
	if err != nil {
		d.Metrics.failed("stamp")
		return false, fmt.Errorf("stamping %s of node %s: %w", step.Reason, f.view.Node.Name, err)
	}
	f.wrote(step)
	d.Log.Info("stamped", "node", f.view.Node.Name, "step", step.Reason, "records", len(changes), "message", step.Message)
	d.Metrics.stamped(step, f.view.Records)
	crashpoint.Here(stampPoint(step.Reason))
	if step.Reason == decision.Escalate {
		d.escalated(f, step.Message)
	}
	return !news, nil
}

func stampPoint(r decision.Reason) string {
	switch r { //nolint:exhaustive // all other stamps are alike
	case decision.Stamp:
		return "fault-remediation/name-stamped"
	case decision.RecordUID:
		return "fault-remediation/uid-stamped"
	}
	return "fault-remediation/stamped"
}
