package reconciler

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/store-client/consumer"
)

// Service is the drains as a consumer of the store: what is quarantined, or in
// draining, and what has to be kept drained, is looked at.
func (rc *Reconciler) Service(name string, workers int) *consumer.Service {
	return &consumer.Service{
		Name: name, Metrics: consume.Names{
			Namespace: "nvsentinel_node_drainer", Handling: "node_drainer_event_handling_duration_seconds",
			Depth: "node_drainer_queue_depth",
		}, Store: rc.records, Selector: record.NodeQuarantineStatus(), Own: rc.records,
		Key: rc.key, Reconcile: rc.Handle, Backlog: consumer.Open(rc.records, all, Outstanding()), Workers: workers,
		Sources: []func(context.Context, func(string)) error{rc.Source, rc.cordons.source},
	}
}

// key is the node of a delivery, but of a fault whose Node does not bear its session yet:
// nothing can be done before it does, and then the Node's change enqueues it, or the
// delivery that reports the mark.
func (rc *Reconciler) key(r record.Record) string {
	if rc.cordons.hear(r) {
		rc.tracker.open(r.Event.NodeName) // before the Node is looked at: its change is not missed
		if rc.cluster.session(r.Event.NodeName) != r.Status.Session {
			return ""
		}
	}
	return r.Event.NodeName
}

func all(record.Record) bool { return true }

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
	onBudget := handler(mayAllow, func(b *policyv1.PodDisruptionBudget) string { return budgetOf(b).name }, func(budget string) {
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

// handler notifies of objects that come, go, or change in a way that matters, by what they
// are of. Of one that changes from one to another, as a pod that ends and so is of no node
// any more, it notifies both.
func handler[T any](matters func(before, after T) bool, of func(T) string, notify func(string)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if o, ok := obj.(T); ok {
				notify(of(o))
			}
		},
		UpdateFunc: func(before, after any) {
			a, okA := before.(T)
			b, okB := after.(T)
			if !okA || !okB || !matters(a, b) {
				return
			}
			notify(of(b))
			if of(a) != of(b) {
				notify(of(a))
			}
		},
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj // the news came late
			}
			if o, ok := obj.(T); ok {
				notify(of(o))
			}
		},
	}
}
