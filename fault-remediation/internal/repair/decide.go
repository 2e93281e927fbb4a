package repair

import "github.com/nvidia/nvsentinel/fault-remediation/plan"

// decide has the plan say what is to be done, which takes nothing but the facts.
func (d *Desk) decide(f *facts) plan.Step {
	return plan.Next(f.view, d.Repairs, d.Policy, d.Clock.Now())
}

// rehearse tells what would be done and leaves it.
func (d *Desk) rehearse(node string, step plan.Step) error {
	if !step.Rests() {
		d.Log.Info("dry run: nothing is written", "node", node, "step", step.Reason, "message", step.Message)
	}
	d.Metrics.steps.WithLabelValues(string(step.Reason), "true").Inc()
	return nil
}
