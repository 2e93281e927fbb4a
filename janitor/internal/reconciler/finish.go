package reconciler

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/janitor/repair"
)

// end writes the outcome.
func (c *Reconciler) end(ctx context.Context, p *pass, v repair.Verdict) error {
	now := c.Clock.Now()
	reason, message := "", ""
	if v.Step == repair.Succeed {
		c.kind.success(p.object, p.node, v.Reason, now)
	} else {
		reason, message = c.kind.outcomeOf(v, p.object)
		c.kind.fail(p.object, now, reason, message)
	}
	if err := c.write(ctx, p.object); err != nil {
		return err
	}
	c.here("janitor/completed")
	switch v.Step {
	case repair.Succeed:
		c.Metrics.count(c.kind, statusSucceeded)
		c.Metrics.Took(c.kind.action, since(p.object, now))
		p.log.Info("repair succeeded")
	case repair.SessionOver:
		c.Metrics.count(c.kind, statusSessionOver)
		p.log.Info("repair was dropped", "why", message)
	default:
		c.Metrics.count(c.kind, statusFailed)
		p.log.Warn("repair failed", "reason", reason, "why", message)
	}
	return nil
}

// unclaim drops the claim, if it is ours, then the finalizer.
func (c *Reconciler) unclaim(ctx context.Context, p *pass, v repair.Verdict) error {
	uid := string(p.object.GetUID())
	if p.node != nil && nodemark.Read(p.node).Claim == uid {
		node, err := kube.PatchNode(ctx, c.Nodes, p.node, func(n *corev1.Node) { nodemark.SetClaim(n, "") })
		if err := gone(err, p); err != nil {
			return err
		}
		p.node = node
	}
	c.here("janitor/unclaimed")
	before := copyOf(p.object)
	controllerutil.RemoveFinalizer(p.object, v1alpha1.ClaimFinalizer)
	if err := c.patch(ctx, p.object, before); err != nil {
		return err
	}
	if v.Reason == repair.Deleted {
		c.Metrics.count(c.kind, statusDeleted)
		p.log.Info("object was deleted before its end")
	}
	return nil
}

// expire removes the object that was read, and no other.
func (c *Reconciler) expire(ctx context.Context, p *pass) error {
	uid, version := p.object.GetUID(), p.object.GetResourceVersion()
	err := c.Objects.Delete(ctx, p.object, client.Preconditions{UID: &uid, ResourceVersion: &version})
	if err := LostRace(err, "removing the object"); err != nil {
		return err
	}
	c.Metrics.count(c.kind, statusExpired)
	p.log.Info("object was removed at the end of its time to live")
	return nil
}

// copyOf is the object as it is now.
func copyOf(object v1alpha1.Repair) client.Object {
	return object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
}

// patch writes the difference of the metadata under before's resourceVersion.
func (c *Reconciler) patch(ctx context.Context, object v1alpha1.Repair, before client.Object) error {
	guarded := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return LostRace(c.Objects.Patch(ctx, object, guarded), "writing the finalizer")
}
