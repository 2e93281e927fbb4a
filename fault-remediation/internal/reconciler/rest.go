package reconciler

import (
	"context"
	"fmt"

	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/outcome"
)

// rest shows on the Node what is waited for, and lets it go until the world changes
// or the step's time is over.
func (d *Reconciler) rest(ctx context.Context, f *facts, step decision.Step) error {
	if err := d.mark(ctx, f, step); err != nil {
		return err
	}
	d.hold(ctx, f, step)
	crashpoint.Here("fault-remediation/done")
	d.Metrics.waiting(step.Reason)
	if step.After > 0 {
		return outcome.Park(step.After, fmt.Sprintf("%s: %s", step.Reason, step.Message))
	}
	return nil
}
