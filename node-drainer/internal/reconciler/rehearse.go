package reconciler

import (
	"context"

	"github.com/nvidia/nvsentinel/internal/outcome"
	"github.com/nvidia/nvsentinel/node-drainer/decision"
)

// rehearse goes through the steps of a drain as if every effect had come true,
// says them and writes nothing.
func (rc *Reconciler) rehearse(ctx context.Context, node string, n *notes) error {
	sc, err := rc.observe(ctx, node, n)
	if err != nil {
		return err
	}
	v, now := sc.view, rc.clock.Now()
	for i := range maxSteps {
		step := decision.Next(v, rc.config.Policy, now)
		rc.metrics.stepped(step)
		rc.say(node, n, step)
		if step.Kind == decision.Wait || step.Kind == decision.Nothing && i == 0 {
			return rc.rest(node, step)
		}
		if step.Rests() {
			break
		}
		v = decision.After(v, step, now)
	}
	return outcome.Park(rc.config.Policy.Recheck, "dry run: the drain is rehearsed")
}

// say logs a step that a dry run has not said of the node before.
func (rc *Reconciler) say(node string, n *notes, step decision.Step) {
	key := event{string(step.Kind), string(step.Why)}
	if n.announced[key] {
		return
	}
	n.announced[key] = true
	rc.log.Info("dry run: drain step not taken", "node", node, "session", step.Session, "step", string(step.Kind),
		"reason", string(step.Why), "pods", len(step.Pods), "left", step.Left, "label", string(step.Label))
}
