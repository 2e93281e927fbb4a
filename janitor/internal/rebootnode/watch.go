package rebootnode

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nvidia/nvsentinel/janitor/api/v1alpha1"
)

// byNode indexes open objects by the node they are for.
const byNode = "spec.nodeName"

// Backoff of an object whose pass failed.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Register adds the controller to a manager: an object's changes ring for it,
// and so do those changes of its Node that a decision depends on.
func (c *Controller) Register(ctx context.Context, mgr ctrl.Manager, workers int) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.RebootNode{}, byNode, func(o client.Object) []string {
		object, ok := o.(*v1alpha1.RebootNode)
		if !ok || object.Status.CompletionTime != nil {
			return nil
		}
		return []string{object.Spec.NodeName}
	})
	if err != nil {
		return fmt.Errorf("indexing objects by node: %w", err)
	}
	unchecked := true
	err = ctrl.NewControllerManagedBy(mgr).Named("rebootnode").
		For(&v1alpha1.RebootNode{}).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(c.objectsOf(mgr.GetClient())),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: relevant})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
			// Names are unique per process in metrics that we do not serve.
			SkipNameValidation: &unchecked,
		}).Complete(c)
	if err != nil {
		return fmt.Errorf("adding the reboot controller: %w", err)
	}
	return nil
}

// objectsOf lists the open objects of a Node.
func (c *Controller) objectsOf(cache client.Reader) handler.MapFunc {
	return func(ctx context.Context, node client.Object) []reconcile.Request {
		var list v1alpha1.RebootNodeList
		if err := cache.List(ctx, &list, client.MatchingFields{byNode: node.GetName()}); err != nil {
			c.Log.Warn("listing a node's objects failed; they are looked at by the clock", "node", node.GetName(), "error", err)
			return nil
		}
		var out []reconcile.Request
		for i := range list.Items {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
		return out
	}
}

// relevant drops a Node's changes that no decision depends on.
func relevant(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.Node)
	after, ok2 := e.ObjectNew.(*corev1.Node)
	return !ok || !ok2 || nodeFacts(before) != nodeFacts(after)
}
