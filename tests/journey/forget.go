package journey

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

// heldFor is how long a node's marks are watched once it is known to be held.
const heldFor = 5 * time.Second

// restLoad ends the load and takes it out of the account: what the store has
// lost is not lost by the suite.
func (t *trip) restLoad(ctx context.Context) error {
	if err := t.endLoad(); err != nil {
		return err
	}
	if err := t.until(ctx, "the load to be stored", t.loadStored); err != nil {
		return err
	}
	t.load.forget()
	return nil
}

func (t *trip) backUp(ctx context.Context) error {
	if err := t.restLoad(ctx); err != nil {
		return err
	}
	restore, err := t.fleet.BackUpStore(ctx)
	t.restore = restore
	return err
}

// emptied has the store lose every record while the connector of a broken node
// stands still, so that nobody tells the store again. The node is held until a
// person has looked at it, and what that person ended quarantines nothing when the
// connector tells of it again: as of all that PostgreSQL acknowledged of late,
// which with an emptied table is another server.
func (t *trip) emptied(ctx context.Context) error {
	if err := t.restLoad(ctx); err != nil {
		return err
	}
	connector := t.fleet.Service(fleet.Connector + "@" + t.node)
	connector.Freeze(true)
	defer connector.Freeze(false)
	if err := t.insist(ctx, "the store to be emptied", t.fleet.EmptyStore); err != nil {
		return err
	}
	t.anew()
	if err := t.stays(ctx, "the node to be held", t.held); err != nil {
		return err
	}
	held := time.Now()
	err := t.stays(ctx, "the node to stay so", func(context.Context) (bool, error) { return time.Since(held) > heldFor, nil })
	if err != nil {
		return err
	}
	if !t.toldAgain {
		t.lost = t.lines // which the connector may tell it again, or not
	}
	if err := t.uncordon(ctx); err != nil {
		return err
	}
	return t.until(ctx, "the person's release", t.bare)
}

// restored has the store lose the session of a broken node, whose connector
// tells it again. The node keeps its marks meanwhile, and goes on after it.
func (t *trip) restored(ctx context.Context) error {
	if err := t.restLoad(ctx); err != nil {
		return err
	}
	if err := t.restore(ctx); err != nil {
		return err
	}
	t.anew()
	if err := t.stays(ctx, "the drain to go on", t.draining); err != nil {
		return err
	}
	return t.endGuard(ctx)
}

// restoredLate has the store take a node for broken that was repaired. Its own
// check says that it is well, since before the store is put back: nothing is done
// to it, and the fault is closed.
func (t *trip) restoredLate(ctx context.Context) error {
	if err := t.until(ctx, "the repair", t.over); err != nil {
		return err
	}
	if err := t.until(ctx, "the node's own check to say so", t.well); err != nil {
		return err
	}
	if err := t.restore(ctx); err != nil {
		return err
	}
	t.anew()
	return t.until(ctx, "the old fault to be closed", func(ctx context.Context) (bool, error) {
		if n, err := t.fleet.Reboots(t.node); err == nil && n > t.scenario.reboots() {
			t.unproven = append(t.unproven, "rebooted again for a fault that its repair had ended")
			return true, nil
		}
		return t.over(ctx)
	})
}

// stays waits while a broken node has to stay out of service.
func (t *trip) stays(ctx context.Context, what string, cond func(context.Context) (bool, error)) error {
	return t.until(ctx, what, func(ctx context.Context) (bool, error) {
		node, err := t.fleet.Node(ctx, t.node)
		if err != nil {
			return false, err
		}
		if !node.Spec.Unschedulable {
			t.unproven = append(t.unproven, "in service with its fault standing, while waiting for "+what)
			return true, nil
		}
		return cond(ctx)
	})
}

// held says whether the Node tells that the store does not know its session.
func (t *trip) held(ctx context.Context) (bool, error) {
	node, err := t.fleet.Node(ctx, t.node)
	return err == nil && node.Annotations[nodemark.UnknownAnnotation] != "", err
}

// well says whether the node's own check reports no fault.
func (t *trip) well(ctx context.Context) (bool, error) {
	node, err := t.fleet.Node(ctx, t.node)
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

// bare says whether no mark of ours is left on the node.
func (t *trip) bare(ctx context.Context) (bool, error) {
	left, err := t.marks(ctx)
	return len(left) == 0, err
}

// besideTransaction opens somebody else's transaction, which ends when the node's
// fault was judged beside it, or when that has taken as long as a step may.
func (t *trip) besideTransaction(ctx context.Context) (func(context.Context) error, error) {
	end, err := t.fleet.HoldTransaction(ctx)
	if err != nil {
		return nil, err
	}
	t.beside = true
	return func(ctx context.Context) error {
		err := t.until(ctx, "a fault to be judged", t.judged)
		if err != nil {
			t.heldUp = "no fault was judged while a foreign transaction was open: " + err.Error()
		}
		return end(ctx)
	}, nil
}

// judged says whether a fault of the node has its verdict.
func (t *trip) judged(ctx context.Context) (bool, error) {
	faults, err := t.faults(ctx)
	for _, r := range faults {
		if r.Reason() != "" {
			return true, err
		}
	}
	return false, err
}

// anew starts the services that read the store once more.
func (t *trip) anew() {
	for _, room := range []string{"fault-quarantine", "node-drainer", "fault-remediation"} {
		for _, s := range t.fleet.Replicas(room) {
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
