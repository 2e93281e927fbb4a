package reconciler

import (
	"context"

	"github.com/nvidia/nvsentinel/janitor/repair"
)

// end writes the outcome.
func (c *Reconciler) end(ctx context.Context, p *pass, v repair.Verdict) error {
	now := c.Clock.Now()
	reason, message := "", ""
	if v.Step == repair.Succeed {
		c.kind.success(p.Object, p.Node, v.Reason, now)
	} else {
		reason, message = c.kind.outcomeOf(v, p.Object)
		c.kind.fail(p.Object, now, reason, message)
	}
	if err := c.Write(ctx, p); err != nil {
		return err
	}
	c.Here("janitor/completed")
	switch v.Step {
	case repair.Succeed:
		c.Count(StatusSucceeded)
		c.Metrics.Took(c.kind.action, since(p.Object, now))
		p.Log.Info("maintenance succeeded")
	case repair.SessionOver:
		c.Count(StatusSessionOver)
		p.Log.Info("maintenance canceled", "why", message)
	default:
		c.Count(StatusFailed)
		p.Log.Warn("maintenance failed", "reason", reason, "why", message)
	}
	return nil
}
