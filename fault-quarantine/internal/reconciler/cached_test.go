package reconciler_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// behind are the Nodes of an API server that are not what the cache shows any more.
type behind struct {
	*fakeNode
	reads int
	moved bool
}

func (b *behind) Read(ctx context.Context, name string) (*corev1.Node, error) {
	b.reads++
	return b.fakeNode.Read(ctx, name)
}

func (b *behind) Patch(ctx context.Context, before *corev1.Node, mutate func(*corev1.Node)) (*corev1.Node, error) {
	if b.moved && b.reads == 0 {
		return nil, kube.ErrConflict
	}
	return b.fakeNode.Patch(ctx, before, mutate)
}

// TestACachedNodeIsEnoughForItsFirstFault: it is not read once more; where it has changed
// since, that is found when it is marked, and it is read then.
func TestACachedNodeIsEnoughForItsFirstFault(t *testing.T) {
	for _, moved := range []bool{false, true} {
		s, nodes := storetest.SQLite(t), &behind{fakeNode: &fakeNode{node: newNode()}, moved: moved}
		d := newReconciler(t, s, nodes)
		cached := nodes.node.DeepCopy()
		d.Cached = func(string) *corev1.Node { return cached }
		fault := event(1, false, "79", "GPU-1")
		fault.Node = kube.NodeIdentity(cached)
		storetest.MustAppend(t, s, fault)
		err := d.Handle(t.Context(), "n1")
		if _, _, waits := retry.AsWait(err); waits != moved {
			t.Fatalf("moved %t: %v", moved, err)
		}
		if moved {
			err = d.Handle(t.Context(), "n1")
		}
		if err != nil || !nodes.node.Spec.Unschedulable || (nodes.reads > 0) != moved {
			t.Errorf("moved %t: %d reads, %v, %+v", moved, nodes.reads, err, nodes.node.Spec)
		}
		if r := storetest.MustGet(t, s, fault.ID); r.Reason() != record.Matched || r.Status.QuarantineFinishTimestamp == nil {
			t.Errorf("moved %t: %+v", moved, r.Status)
		}
		if cached.Spec.Unschedulable {
			t.Error("the cache's own object was changed")
		}
	}
}
