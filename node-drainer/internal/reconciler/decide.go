package reconciler

import (
	"context"

	"github.com/nvidia/nvsentinel/node-drainer/decision"
)

// decide says what the next step is; one that cannot be taken back is decided again
// with facts from the API server itself.
func (rc *Reconciler) decide(ctx context.Context, node string, sc snapshot) (decision.Step, snapshot, error) {
	step := decision.Next(sc.view, rc.config.Policy, rc.clock.Now())
	if !step.Irreversible() {
		return step, sc, nil
	}
	sc, err := rc.confirm(ctx, node, sc, step.Kind == decision.Finish)
	if err != nil {
		return step, sc, err
	}
	return decision.Next(sc.view, rc.config.Policy, rc.clock.Now()), sc, nil
}
