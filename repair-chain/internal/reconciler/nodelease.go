package reconciler

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/repair-chain/chain"
)

// leaseDuration bounds a lease that is taken; it is taken again at half of it, until the run
// has ended.
const leaseDuration = 40 * time.Minute

// claimed is a lease that a run took of a node.
type claimed struct{ run, node types.UID }

// claim takes the node's lease for a run; why is what keeps the run from it. A run whose
// maker holds the lease takes none, and none is taken of a Node that is gone.
func (c *Reconciler) claim(ctx context.Context, run *v1alpha1.RepairRun, node *corev1.Node) (why string) {
	if c.Leases == nil || node == nil || chain.Leased(run) {
		return ""
	}
	key, now := claimed{run.UID, node.UID}, c.Clock.Now()
	if at, ok := c.taken.Load(key); ok && now.Sub(at.(time.Time)) < leaseDuration/2 { //nolint:forcetypeassert // stored below
		return ""
	}
	if err := c.Leases.Take(ctx, node, chain.Holder(run), leaseDuration, nil); err != nil {
		if _, is := nodelease.Taken(err); !is {
			c.Log.Warn("node lease not acquired, no step started", "run", run.Name, "node", node.Name, "error", err)
		}
		return err.Error()
	}
	c.taken.Store(key, now)
	return ""
}

// unclaim gives the lease of a run back that has ended.
func (c *Reconciler) unclaim(ctx context.Context, run *v1alpha1.RepairRun) error {
	node := v1alpha1.NodeOf(run)
	if c.Leases == nil || node == "" || chain.Leased(run) {
		return nil
	}
	c.taken.Range(func(key, _ any) bool {
		if key.(claimed).run == run.UID { //nolint:forcetypeassert // stored above
			c.taken.Delete(key)
		}
		return true
	})
	return c.Leases.Drop(ctx, node, chain.Holder(run))
}
