package reconciler

import (
	"context"
	"time"

	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/outcome"
	"github.com/nvidia/nvsentinel/node-drainer/decision"
)

// Handle takes a node's steps until its drain rests.
func (d *Reconciler) Handle(ctx context.Context, node string) error {
	if ok, detail := d.cluster.Synced(); !ok {
		return outcome.Wait(time.Second, detail)
	}
	n := d.tracker.open(node)
	if d.config.DryRun {
		return d.rehearse(ctx, node, n)
	}
	if d.shows(node) && d.cordons.standBack(ctx, node, n) {
		return outcome.Park(decision.StandBackFor, "the faults of other nodes are judged and marked first")
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
func (d *Reconciler) step(ctx context.Context, node string, n *notes) (step decision.Step, rests bool, err error) {
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
	if err := d.do(ctx, node, n, sc, step); err != nil {
		return step, false, err
	}
	crashpoint.Here("node-drainer/done")
	news, err := d.stamp(ctx, node, n, sc, step)
	if err != nil {
		return step, false, err
	}
	crashpoint.Here("node-drainer/stamped")
	d.tell(node, n, sc, step)
	if news { // others changed the records right after the stamp
		return step, false, nil
	}
	step = d.followed(sc.view, step)
	return step, step.Rests(), nil
}
