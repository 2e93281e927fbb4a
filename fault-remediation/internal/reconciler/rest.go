package reconciler

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/outcome"
)

// rest shows on the Node what is waited for, and lets it go until the world changes
// or the step's time is over.
func (d *Reconciler) rest(ctx context.Context, f *facts, step decision.Step) error {
	if err := d.mark(ctx, f, step); err != nil {
		return err
	}
	if step.Reason == decision.WaitNewer && f.node != nil {
		d.Events.Event(eventrecorder.Node(f.node.Name), corev1.EventTypeWarning, string(step.Reason),
			"the node's repair is for a newer version of fault-remediation to go on with, see docs/upgrade.md: "+step.Message)
	}
	d.hold(ctx, f, step)
	crashpoint.Here("fault-remediation/done")
	d.Metrics.waiting(step.Reason)
	if step.After > 0 {
		return outcome.Park(step.After, fmt.Sprintf("%s: %s", step.Reason, step.Message))
	}
	return nil
}
