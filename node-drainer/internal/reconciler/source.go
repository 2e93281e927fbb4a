package reconciler

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/cache"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/node-drainer/decision"
)

// Source enqueues the nodes in draining when the world changes for them: their
// Node, their pods, or a budget that refused one of them.
func (rc *Reconciler) Source(ctx context.Context, enqueue func(key string)) error {
	wake := func(node string) {
		if rc.tracker.knows(node) {
			enqueue(node)
		}
	}
	onNode := handler(nodeChanged, func(n *corev1.Node) string { return n.Name }, wake)
	onPod := handler(podChanged, func(p *kube.Packed) string { return p.Node }, wake)
	onBudget := handler(mayAllow, func(b *policyv1.PodDisruptionBudget) string { return seen(b).name }, func(budget string) {
		for _, node := range rc.tracker.refusedBy(budget) {
			enqueue(node)
		}
	})
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return listen(ctx, rc.cluster.nodeInformer, onNode) })
	group.Go(func() error { return listen(ctx, rc.cluster.podInformer, onPod) })
	group.Go(func() error { return listen(ctx, rc.cluster.budgetInformer, onBudget) })
	return group.Wait()
}

// listen hands changes to a handler until ctx ends.
func listen(ctx context.Context, informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) error {
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return fmt.Errorf("listening to changes: %w", err)
	}
	<-ctx.Done()
	return informer.RemoveEventHandler(registration)
}

// handler tells of objects that come, go, or change in a way that matters, by what they
// are of. One that changes from one to another, as a pod that ends and so is of no node
// any more, is told to both.
func handler[T any](matters func(before, after T) bool, of func(T) string, tell func(string)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if o, ok := obj.(T); ok {
				tell(of(o))
			}
		},
		UpdateFunc: func(before, after any) {
			a, okA := before.(T)
			b, okB := after.(T)
			if !okA || !okB || !matters(a, b) {
				return
			}
			tell(of(b))
			if of(a) != of(b) {
				tell(of(a))
			}
		},
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj // the news came late
			}
			if o, ok := obj.(T); ok {
				tell(of(o))
			}
		},
	}
}

// nodeChanged compares what a decision sees, but for the state label, which this
// service and fault-remediation write themselves, and for the taint by which
// Kubernetes follows a cordon, which says nothing that the cordon does not.
func nodeChanged(a, b *corev1.Node) bool {
	return a.UID != b.UID || !equality.Semantic.DeepEqual(telling(a), telling(b))
}

func telling(node *corev1.Node) decision.Node {
	facts := decision.NodeOf(node)
	facts.State = ""
	facts.Taints = slices.DeleteFunc(facts.Taints, func(t record.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable })
	return facts
}

// mayAllow says whether a budget that changed may allow a disruption again, or takes in
// other pods.
func mayAllow(a, b *policyv1.PodDisruptionBudget) bool {
	return seen(b).allows || !equality.Semantic.DeepEqual(a.Spec.Selector, b.Spec.Selector)
}
