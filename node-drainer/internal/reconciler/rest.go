package reconciler

import (
	"errors"

	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/outcome"
	"github.com/nvidia/nvsentinel/node-drainer/decision"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// followed is the rest that follows a Finish on the facts it was taken on, which
// were read a moment ago: whatever changes them enqueues the node. If it is no
// rest, the Finish is returned, so that everything is read again.
func (rc *Reconciler) followed(v decision.View, step decision.Step) decision.Step {
	if step.Kind != decision.Finish {
		return step
	}
	now := rc.clock.Now()
	next := decision.Next(decision.After(v, step, now), rc.config.Policy, now)
	if !next.Rests() || next.Label != "" || len(next.Stamps) > 0 {
		return step
	}
	rc.metrics.stepped(next)
	return next
}

// rest says how the consumer goes on after the last step of a visit.
func (rc *Reconciler) rest(node string, step decision.Step) error {
	if step.Kind == decision.Nothing {
		rc.tracker.close(node)
		return nil
	}
	return outcome.Park(step.Until.Sub(rc.clock.Now()), string(step.Why))
}

// lostRace says whether somebody else changed the Node or a record after it was
// read.
func lostRace(err error) bool {
	return errors.Is(err, kube.ErrConflict) || errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound)
}
