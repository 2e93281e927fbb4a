package reconciler

import (
	"context"
	"time"

	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/outcome"
)

// maxSteps bounds the steps of one handling; a whole life takes about ten.
const maxSteps = 20

// raceWait is the pause after as many lost races as that.
const raceWait = time.Second

// Handle takes a node's steps until the next one only waits: it observes, decides, does,
// stamps and rests. Before each step the facts are read again, so that an object is
// created on facts of the moment.
func (d *Reconciler) Handle(ctx context.Context, node string) error {
	var reserved *reservation
	for range maxSteps {
		f, err := d.observe(ctx, node, reserved)
		if err != nil {
			return err
		}
		crashpoint.Here("fault-remediation/observed")
		step := d.decide(f)
		crashpoint.Here("fault-remediation/decided")
		switch {
		case d.DryRun:
			return d.rehearse(node, step)
		case step.Create != nil:
			step, err = d.do(ctx, f, step)
		case len(step.Writes) > 0:
			_, err = d.stamp(ctx, f, step)
		}
		if err != nil {
			return err
		}
		if step.Rests() {
			return d.rest(ctx, f, step)
		}
		reserved = reserve(f, step)
	}
	return outcome.Wait(raceWait, "node "+node+" changes faster than it is repaired")
}

// do has the reserved object created, and records that it exists. What becomes of
// it from then on enqueues the node: nothing is read again to wait for it, and the Node
// has its mark already.
func (d *Reconciler) do(ctx context.Context, f *facts, step decision.Step) (decision.Step, error) {
	step, err := d.create(ctx, f, step)
	if err != nil || len(step.Writes) == 0 {
		return step, err
	}
	quiet, err := d.stamp(ctx, f, step)
	if wait := d.decide(f); quiet && wait.Reason == decision.WaitObject && wait.Rests() {
		wait.Label, wait.Lemon = "", nil
		return wait, err
	}
	return step, err
}
