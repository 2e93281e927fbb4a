package reconciler

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/nodelease"
)

const (
	// holder of the leases that this service takes.
	holder = "fault-remediation"
	// leaseDuration bounds a lease that is taken; that of a repair that takes longer is taken
	// again at half of it. leaseMargin is how much longer a lease lives than an object may
	// be without a verdict.
	leaseDuration = 40 * time.Minute
	leaseMargin   = time.Minute
)

// claim takes the node's lease for as long as the object to be may be without a
// verdict, or a while of that: until then no other remediator begins anything. It is not
// released before; the node is in quarantine, where others leave it alone anyway.
func (r *Reconciler) claim(ctx context.Context, node *corev1.Node, by record.Action) error {
	if r.Leases == nil {
		return nil
	}
	duration := leaseDuration
	if repair, _ := r.Repairs.Of(by); repair.UnknownTimeout > 0 {
		duration = min(duration, repair.UnknownTimeout)
	}
	err := r.Leases.Take(ctx, node, holder, duration+leaseMargin, nil)
	if err == nil {
		r.taken.Store(node.Name, r.Clock.Now())
	}
	return err
}

// renewLease takes the lease of a node again while its repair object is active, when half
// of the lease's duration is over. If somebody else has taken it, or it cannot be taken,
// the object works on: the next pass tries again.
func (r *Reconciler) renewLease(ctx context.Context, f *facts, step decision.Step) {
	if r.Leases == nil || f.node == nil || step.Reason != decision.WaitObject {
		return
	}
	now := r.Clock.Now()
	if at, ok := r.taken.Load(f.node.Name); ok && now.Sub(at.(time.Time)) < leaseDuration/2 {
		return
	}
	err := r.Leases.Take(ctx, f.node, holder, leaseDuration+leaseMargin, nil)
	if _, is := nodelease.Taken(err); is {
		r.Log.Warn("node lease lost to another remediator while the maintenance object is active", "node", f.node.Name, "error", err)
	} else if err != nil {
		r.Log.Warn("node lease not renewed while the maintenance object is active, retrying at the next poll", "node", f.node.Name, "error", err)
		return
	}
	r.taken.Store(f.node.Name, now)
}
