package drain

import (
	"context"
	"time"

	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/outcome"
	"github.com/nvidia/nvsentinel/node-drainer/plan"
)

// Handle takes a node's steps until its drain rests.
func (d *Drain) Handle(ctx context.Context, node string) error {
	if ok, detail := d.world.Synced(); !ok {
		return outcome.Wait(time.Second, detail)
	}
	n := d.memory.open(node)
	if d.config.DryRun {
		return d.rehearse(ctx, node, n)
	}
	for range maxSteps {
		step, rests, err := d.step(ctx, node, n)
		switch {
		case lostRace(err):
			return outcome.Race(err.Error())
		case err != nil:
			return err
		case rests:
			return d.rest(node, step)
		}
	}
	return outcome.Wait(0, "more steps to take")
}

// step observes, decides, does and stamps once. It returns the step that the
// drain rests on then, if it rests.
func (d *Drain) step(ctx context.Context, node string, n *notes) (step plan.Step, rests bool, err error) {
	sc, err := d.observe(ctx, node, n)
	if err != nil {
		return step, false, err
	}
	crashpoint.Here("node-drainer/observed")
	step, sc, err = d.decide(ctx, node, sc)
	if err != nil {
		return step, false, err
	}
	crashpoint.Here("node-drainer/decided")
	if crashpoint.Sabotaged("node-drainer/stamp-before-effect") && len(step.Pods) > 0 {
		if _, err := d.stamp(ctx, node, n, sc, tooSoon(sc.view)); err != nil {
			return step, false, err
		}
	}
	if err := d.do(ctx, node, n, sc, step); err != nil {
		return step, false, err
	}
	crashpoint.Here("node-drainer/done")
	news, err := d.stamp(ctx, node, n, sc, step)
	if err != nil {
		return step, false, err
	}
	crashpoint.Here("node-drainer/stamped")
	d.tell(ctx, node, n, sc, step)
	if news { // others changed the records right after the stamp
		return step, false, nil
	}
	step = d.followed(sc.view, step)
	return step, step.Rests(), nil
}

// tooSoon is the success of a drain whose pods are still there: the fault that
// the crash tests plant to see that they find it.
func tooSoon(v plan.View) plan.Step {
	v.Pods = nil
	return plan.Next(v, plan.Policy{}, time.Time{})
}
