package reconciler

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/janitor/repair"
)

// The steps of this file are those of every kind: finalizer and claim at the start, the
// wait, and claim, finalizer and object at the end.

// begin writes the finalizer, then start and intent.
func (f *Frame[O, F]) begin(ctx context.Context, p *Pass[O, F]) error {
	if before := copyOf(p.Object); controllerutil.AddFinalizer(p.Object, v1alpha1.ClaimFinalizer) {
		if err := f.patch(ctx, p, before); err != nil {
			return err
		}
	}
	first := f.Begin(p.Object, p.Node, f.Clock.Now())
	if err := f.Write(ctx, p); err != nil {
		return err
	}
	if first {
		f.Count(statusStarted)
		p.Log.Info("maintenance object accepted", "key", p.Object.GetUID())
	}
	f.Here("janitor/intent-written")
	return nil
}

// claim writes the object's uid on the Node, while that shows its session.
func (f *Frame[O, F]) claim(ctx context.Context, p *Pass[O, F]) error {
	return f.Mark(ctx, p, "janitor/claimed", func(n *corev1.Node) { nodemark.SetClaim(n, string(p.Object.GetUID())) })
}

// Mark changes the Node that was read, and no other. Its certain absence becomes a fact of
// the pass.
func (f *Frame[O, F]) Mark(ctx context.Context, p *Pass[O, F], point string, change func(*corev1.Node)) error {
	node, err := kube.PatchNode(ctx, f.Nodes, p.Node, change)
	if err != nil && !errors.Is(err, kube.ErrNodeDeleted) {
		return err
	}
	p.Node = node
	f.Here(point)
	return nil
}

// wait shows what the object waits for, if that is news.
func (f *Frame[O, F]) wait(ctx context.Context, p *Pass[O, F], v repair.Verdict) error {
	if f.Completed(p.Object) || !f.Waiting(p.Object, p.Node, v, f.Clock.Now()) {
		return nil
	}
	if v.Reason == repair.SessionUnknown {
		f.Count(statusSessionUnknown)
		p.Log.Warn("maintenance postponed", "why", "the store does not show the state of all faults in the node's quarantine session", "annotation", nodemark.UnknownAnnotation)
	}
	return f.Write(ctx, p)
}

// unclaim drops the claim, if it is ours, then the finalizer.
func (f *Frame[O, F]) unclaim(ctx context.Context, p *Pass[O, F], v repair.Verdict) error {
	if p.Node != nil && nodemark.Read(p.Node).Claim == string(p.Object.GetUID()) {
		err := f.Mark(ctx, p, "janitor/unclaimed", func(n *corev1.Node) { nodemark.SetClaim(n, "") })
		if err != nil {
			return err
		}
	} else {
		f.Here("janitor/unclaimed")
	}
	before := copyOf(p.Object)
	controllerutil.RemoveFinalizer(p.Object, v1alpha1.ClaimFinalizer)
	if err := f.patch(ctx, p, before); err != nil {
		return err
	}
	if v.Reason == repair.Deleted {
		f.Count(statusDeleted)
		p.Log.Info("object deleted before its completion")
	}
	return nil
}

// expire removes the object that was read, and no other.
func (f *Frame[O, F]) expire(ctx context.Context, p *Pass[O, F]) error {
	uid, version := p.Object.GetUID(), p.Object.GetResourceVersion()
	err := f.Objects.Delete(ctx, p.Object, client.Preconditions{UID: &uid, ResourceVersion: &version})
	if err := lostRace(err, "removing the object"); err != nil {
		return err
	}
	f.Count(statusExpired)
	p.Log.Info("object removed after its time to live")
	return nil
}

// Count counts a repair of the kind, as far as it came.
func (f *Frame[O, F]) Count(status string) { f.Metrics.count(f.Action, status) }

// copyOf is the object as it is now.
func copyOf(object client.Object) client.Object {
	return object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
}

// patch writes the difference of the metadata under before's resourceVersion.
func (f *Frame[O, F]) patch(ctx context.Context, p *Pass[O, F], before client.Object) error {
	guarded := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return lostRace(f.Objects.Patch(ctx, p.Object, guarded), "writing the finalizer")
}
