package reconciler

import "github.com/nvidia/nvsentinel/fault-remediation/decision"

// decide says what is to be done, which takes nothing but the facts.
func (d *Reconciler) decide(f *facts) decision.Step {
	return decision.Next(f.view, d.Repairs, d.Policy, d.Clock.Now())
}

// rehearse tells what would be done and leaves it.
func (d *Reconciler) rehearse(node string, step decision.Step) error {
	if !step.Rests() {
		d.Log.Info("dry run: nothing is written", "node", node, "step", step.Reason, "message", step.Message)
	}
	d.Metrics.steps.WithLabelValues(string(step.Reason), "true").Inc()
	return nil
}
