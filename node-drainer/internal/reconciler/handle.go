package reconciler

import (
	"context"
	"time"

	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/outcome"
	"github.com/nvidia/nvsentinel/node-drainer/decision"
)

// Handle takes a node's steps until its drain rests.
func (rc *Reconciler) Handle(ctx context.Context, node string) error {
	if ok, detail := rc.cluster.Synced(); !ok {
		return outcome.Wait(time.Second, detail)
	}
	n := rc.tracker.open(node)
	if rc.config.DryRun {
		return rc.rehearse(ctx, node, n)
	}
	if rc.shows(node) && rc.cordons.standBack(ctx, node, n) {
		return outcome.Park(decision.StandBackFor, "the faults of other nodes are judged and marked first")
	}
	for range maxSteps {
		step, rests, err := rc.step(ctx, node, n)
		switch {
		case lostRace(err):
			return outcome.Race(err.Error())
		case err != nil:
			return err
		case rests:
			return rc.rest(node, step)
		}
	}
	return outcome.Wait(0, "more steps to take")
}

// step observes, decides, does and stamps once. It returns the step that the
// drain rests on then, if it rests.
func (rc *Reconciler) step(ctx context.Context, node string, n *notes) (step decision.Step, rests bool, err error) {
	sc, err := rc.observe(ctx, node, n)
	if err != nil {
		return step, false, err
	}
	crashpoint.Here("node-drainer/observed")
	step, sc, err = rc.decide(ctx, node, sc)
	if err != nil {
		return step, false, err
	}
	crashpoint.Here("node-drainer/decided")
	if err := rc.do(ctx, node, n, sc, step); err != nil {
		return step, false, err
	}
	crashpoint.Here("node-drainer/done")
	news, err := rc.stamp(ctx, node, n, sc, step)
	if err != nil {
		return step, false, err
	}
	crashpoint.Here("node-drainer/stamped")
	rc.tell(node, n, sc, step)
	if news { // others changed the records right after the stamp
		return step, false, nil
	}
	step = rc.followed(sc.view, step)
	return step, step.Rests(), nil
}
