package reconciler

import (
	"context"
	"sync/atomic"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// behind is a cache whose list of remediations is behind that of everything else.
type behind struct {
	client.Reader
	hides *atomic.Bool
	lists *atomic.Int32
}

func (b behind) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if kind := list.GetObjectKind().GroupVersionKind().Kind; kind == rebootKind.Kind+"List" && b.hides.Load() {
		b.lists.Add(1)
		return nil
	}
	return b.Reader.List(ctx, list, options...)
}

// A new leader whose first list of remediations is behind keeps the lease of a node
// whose remediation it does not see.
func TestALeaseOutlivesAListThatIsBehind(t *testing.T) {
	w := newWorld(t, "behind")
	a := w.node("a")
	ref := w.template(rebootKind, "")
	w.fall(a)
	name := w.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &ref })
	stop := w.start(nil, nil)
	w.settle(name, "the node is remediated", remediations(1))
	stop()
	before := &coordinationv1.Lease{}
	key := types.NamespacedName{Namespace: w.leases, Name: nodelease.Name(a)}
	if err := w.live.Get(t.Context(), key, before); err != nil {
		t.Fatal(err)
	}
	// Paused, so that the pass does not find the object when it would make it again.
	pause := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"pauseRequests":["the test"]}}`))
	if err := w.live.Patch(t.Context(), &v1alpha1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: name}}, pause); err != nil {
		t.Fatal(err)
	}
	var hides atomic.Bool
	var lists atomic.Int32
	hides.Store(true)
	w.start(nil, func(c *Reconciler) { c.cached = behind{c.cached, &hides, &lists} })
	testkit.Until(t, waitTimeout, func() bool { return lists.Load() >= 3 })
	after := &coordinationv1.Lease{}
	if err := w.live.Get(t.Context(), key, after); err != nil || after.UID != before.UID {
		t.Errorf("the lease %s is %s by now: %v", before.UID, after.UID, err)
	}
	hides.Store(false)
	w.settle(name, "it sees its remediation again", remediations(1))
}
