package repair

import (
	"context"
	"errors"
	"time"

	"github.com/nvidia/nvsentinel/fault-remediation/action"
	"github.com/nvidia/nvsentinel/fault-remediation/plan"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/internal/outcome"
)

const (
	// holder of the leases that this service takes.
	holder = "fault-remediation"
	// leaseLife bounds a lease that is taken; that of a repair that takes longer is taken
	// again at half of it. leaseMargin is how much longer a lease lives than an object may
	// be without a verdict.
	leaseLife   = 40 * time.Minute
	leaseMargin = time.Minute
	// leaseWait is how long a node is left to somebody who has its lease.
	leaseWait = time.Minute
)

// claim takes the node's lease for as long as the object to be may be without a
// verdict, or a while of that: until then no other remediator begins anything. It is not
// given back before; the node is in quarantine, where others leave it alone anyway. waits
// says that somebody else has it.
func (d *Desk) claim(ctx context.Context, name string, repair action.Action) (waits, err error) {
	if d.Leases == nil {
		return nil, nil
	}
	node, err := kube.ReadNode(ctx, d.Cluster.Clientset, name)
	if errors.Is(err, kube.ErrGone) {
		return nil, nil // nobody else can take it either
	}
	if err != nil {
		return nil, err
	}
	life := leaseLife
	if repair.UnknownTimeout > 0 {
		life = min(life, repair.UnknownTimeout)
	}
	err = d.Leases.Take(ctx, node, holder, life+leaseMargin, nil)
	if taken, is := nodelease.Taken(err); is {
		return outcome.Park(leaseWait, taken.Error()), nil
	}
	if err == nil {
		d.taken.Store(name, d.Clock.Now())
	}
	return nil, err
}

// hold takes the lease of a node again whose repair object works on, when half of its
// life is over. Neither that somebody else has taken it by now nor that it can not be
// taken changes anything of what works: the next look tries again.
func (d *Desk) hold(ctx context.Context, f *facts, step plan.Step) {
	if d.Leases == nil || f.node == nil || step.Reason != plan.WaitObject {
		return
	}
	now := d.Clock.Now()
	if at, ok := d.taken.Load(f.node.Name); ok {
		if at, _ := at.(time.Time); now.Sub(at) < leaseLife/2 {
			return
		}
	}
	err := d.Leases.Take(ctx, f.node, holder, leaseLife+leaseMargin, nil)
	if _, is := nodelease.Taken(err); err != nil && !is {
		d.Log.Warn("the node's lease is not taken again while its repair object works, trying at the next look", "node", f.node.Name, "error", err)
		return
	} else if is {
		d.Log.Warn("another remediator has the node's lease while its repair object works", "node", f.node.Name, "error", err)
	}
	d.taken.Store(f.node.Name, now)
}
