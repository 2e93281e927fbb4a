package drain

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/internal/outcome"
	"github.com/nvidia/nvsentinel/node-drainer/plan"
)

// rehearse goes through the steps of a drain as if every effect had come true,
// says them and writes nothing.
func (d *Drain) rehearse(ctx context.Context, node string, n *notes) error {
	sc, err := d.observe(ctx, node, n)
	if err != nil {
		return err
	}
	v := sc.view
	for i := range maxSteps {
		step := plan.Next(v, d.config.Policy, d.clock.Now())
		d.metrics.stepped(step)
		d.say(node, n, step)
		switch {
		case step.Kind == plan.Nothing && i == 0:
			d.memory.close(node)
			return nil
		case step.Kind == plan.Wait:
			return outcome.Park(step.Until.Sub(d.clock.Now()), "dry run: "+string(step.Why))
		case step.Kind == plan.Nothing:
			return outcome.Park(d.config.Policy.Recheck, "dry run: the drain is rehearsed")
		}
		v = d.imagine(v, step)
	}
	return outcome.Park(d.config.Policy.Recheck, "dry run: too many steps")
}

// say logs a step that a dry run has not said of the node before.
func (d *Drain) say(node string, n *notes, step plan.Step) {
	key := event{string(step.Kind), string(step.Why)}
	if n.announced[key] {
		return
	}
	n.announced[key] = true
	d.log.Info("dry run: drain step not taken", "node", node, "session", step.Session, "step", string(step.Kind),
		"reason", string(step.Why), "pods", len(step.Pods), "left", step.Left, "label", string(step.Label))
}

// imagine is the view after a step: its pods gone, its stamps written.
func (d *Drain) imagine(v plan.View, step plan.Step) plan.View {
	v.Pods = slices.DeleteFunc(slices.Clone(v.Pods), func(p *corev1.Pod) bool { return slices.Contains(step.Pods, p) })
	if step.Label != "" {
		v.Node.State = step.Label
	}
	v.Records = slices.Clone(v.Records)
	for i := range v.Records {
		for _, s := range step.Stamps {
			if s.ID == v.Records[i].ID {
				v.Records[i].Status = s.On(v.Records[i].Status, d.clock.Now())
			}
		}
	}
	return v
}
