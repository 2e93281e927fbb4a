package drain

import (
	"context"

	"github.com/nvidia/nvsentinel/node-drainer/plan"
)

// decide asks the plan; a step that cannot be taken back is asked again with
// facts from the API server itself.
func (d *Drain) decide(ctx context.Context, node string, sc scene) (plan.Step, scene, error) {
	step := plan.Next(sc.view, d.config.Policy, d.clock.Now())
	if !step.Irreversible() {
		return step, sc, nil
	}
	sc, err := d.confirm(ctx, node, sc, step.Kind == plan.Finish)
	if err != nil {
		return step, sc, err
	}
	return plan.Next(sc.view, d.config.Policy, d.clock.Now()), sc, nil
}
