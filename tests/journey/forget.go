package journey

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

// markWatchTime is how long a node's marks are watched once it is known to be held.
const markWatchTime = 5 * time.Second

// stopLoad ends the load and takes it out of the account: what the store has
// lost is not lost by the suite.
func (sr *scenarioRun) stopLoad(ctx context.Context) error {
	if err := sr.endLoad(); err != nil {
		return err
	}
	if err := sr.until(ctx, "the load to be stored", sr.loadStored); err != nil {
		return err
	}
	sr.load.forget()
	return nil
}

func (sr *scenarioRun) backUp(ctx context.Context) error {
	if err := sr.stopLoad(ctx); err != nil {
		return err
	}
	restore, err := sr.fleet.BackUpStore(ctx)
	sr.restore = restore
	return err
}

// emptied makes the store lose every record while the connector of a broken node stands still,
// so that the fault is not reported again. The node is held until a person has looked at it, and
// a fault that the person ended quarantines nothing when the connector reports it again. The
// connector repeats all that PostgreSQL acknowledged recently, because a server with an emptied
// table counts as another server.
func (sr *scenarioRun) emptied(ctx context.Context) error {
	if err := sr.stopLoad(ctx); err != nil {
		return err
	}
	connector := sr.fleet.Service(fleet.Connector + "@" + sr.node)
	connector.Freeze(true)
	defer connector.Freeze(false)
	if err := sr.insist(ctx, "the store to be emptied", sr.fleet.EmptyStore); err != nil {
		return err
	}
	sr.restartReaders()
	if err := sr.stays(ctx, "the node to be held", sr.sessionUnknown); err != nil {
		return err
	}
	held := time.Now()
	err := sr.stays(ctx, "the node to stay so", func(context.Context) (bool, error) { return time.Since(held) > markWatchTime, nil })
	if err != nil {
		return err
	}
	if !sr.replayed {
		sr.lost = sr.lines // the connector may report them again, or not
	}
	if err := sr.uncordon(ctx); err != nil {
		return err
	}
	return sr.until(ctx, "the person's release", sr.bare)
}

// restored makes the store lose the session of a broken node, whose connector reports the fault
// again. The node keeps its marks meanwhile, and its repair continues afterwards.
func (sr *scenarioRun) restored(ctx context.Context) error {
	if err := sr.stopLoad(ctx); err != nil {
		return err
	}
	if err := sr.restore(ctx); err != nil {
		return err
	}
	sr.restartReaders()
	if err := sr.stays(ctx, "the drain to go on", sr.draining); err != nil {
		return err
	}
	return sr.endGuard(ctx)
}

// restoredLate puts the store back to when a repaired node was broken. The node's own check has
// reported it healthy since before that: nothing is done to it, and the fault is closed.
func (sr *scenarioRun) restoredLate(ctx context.Context) error {
	if err := sr.until(ctx, "the repair", sr.over); err != nil {
		return err
	}
	if err := sr.until(ctx, "the node's own check to say so", sr.well); err != nil {
		return err
	}
	if err := sr.restore(ctx); err != nil {
		return err
	}
	sr.restartReaders()
	return sr.until(ctx, "the old fault to be closed", func(ctx context.Context) (bool, error) {
		if n, err := sr.fleet.Reboots(sr.node); err == nil && n > sr.scenario.reboots() {
			sr.unproven = append(sr.unproven, "rebooted again for a fault that its repair had ended")
			return true, nil
		}
		return sr.over(ctx)
	})
}

// stays waits while a broken node has to stay out of service.
func (sr *scenarioRun) stays(ctx context.Context, what string, cond func(context.Context) (bool, error)) error {
	return sr.until(ctx, what, func(ctx context.Context) (bool, error) {
		node, err := sr.fleet.Node(ctx, sr.node)
		if err != nil {
			return false, err
		}
		if !node.Spec.Unschedulable {
			sr.unproven = append(sr.unproven, "in service with its fault standing, while waiting for "+what)
			return true, nil
		}
		return cond(ctx)
	})
}

// sessionUnknown reports whether the Node shows that the store does not know its session.
func (sr *scenarioRun) sessionUnknown(ctx context.Context) (bool, error) {
	node, err := sr.fleet.Node(ctx, sr.node)
	return err == nil && node.Annotations[nodemark.UnknownAnnotation] != "", err
}

// well reports whether the node's own check reports no fault.
func (sr *scenarioRun) well(ctx context.Context) (bool, error) {
	node, err := sr.fleet.Node(ctx, sr.node)
	if err != nil {
		return false, err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == "SysLogsXIDError" {
			return c.Status == corev1.ConditionFalse, nil
		}
	}
	return false, nil
}

// bare reports whether no mark of NVSentinel is left on the node.
func (sr *scenarioRun) bare(ctx context.Context) (bool, error) {
	left, err := sr.marks(ctx)
	return len(left) == 0, err
}

// besideTransaction opens somebody else's transaction, which ends when the node's fault is
// evaluated while it is open, or when that has taken as long as a step may.
func (sr *scenarioRun) besideTransaction(ctx context.Context) (func(context.Context) error, error) {
	end, err := sr.fleet.HoldTransaction(ctx)
	if err != nil {
		return nil, err
	}
	sr.beside = true
	return func(ctx context.Context) error {
		err := sr.until(ctx, "a fault to be judged", sr.evaluated)
		if err != nil {
			sr.blockedBy = "no fault was judged while a foreign transaction was open: " + err.Error()
		}
		return end(ctx)
	}, nil
}

// evaluated reports whether a fault of the node has its verdict.
func (sr *scenarioRun) evaluated(ctx context.Context) (bool, error) {
	faults, err := sr.faults(ctx)
	for _, r := range faults {
		if r.Reason() != "" {
			return true, err
		}
	}
	return false, err
}

// restartReaders starts the services that read the store once more.
func (sr *scenarioRun) restartReaders() {
	for _, service := range []string{"fault-quarantine", "node-drainer", "fault-remediation"} {
		for _, s := range sr.fleet.Replicas(service) {
			s.Kill()
		}
	}
}

// forget empties the account of what was acknowledged.
func (l *load) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.acked)
}
