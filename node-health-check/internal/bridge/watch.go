package bridge

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nvidia/nvsentinel/api/healthevent/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/controller"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/node-health-check/bridge"
)

const (
	// workers is how many objects are taken on at once.
	workers = 16
	// firstRetry and lastRetry of an object whose step failed.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 15 * time.Second
)

// Watch adds the controller to a manager.
func (c *Reconciler) Watch(mgr ctrl.Manager) error {
	c.cached = mgr.GetCache()
	err := ctrl.NewControllerManagedBy(mgr).Named("health-event-remediation").
		For(&v1alpha1.HealthEventRemediation{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(c.ofNode), builder.WithPredicates(predicate.Funcs{UpdateFunc: stateChanged})).
		WithOptions(controller.NewOptions(workers, firstRetry, lastRetry)).Complete(c)
	if err != nil {
		return fmt.Errorf("adding the controller of HealthEventRemediations: %w", err)
	}
	return nil
}

// ofNode are the remediations of a node.
func (c *Reconciler) ofNode(ctx context.Context, node client.Object) []reconcile.Request {
	list := &v1alpha1.HealthEventRemediationList{}
	if err := c.cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		c.Log.Warn("HealthEventRemediations not listed, their conditions are outdated until the next change", "node", node.GetName(), "error", err)
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		if bridge.NodeOf(&list.Items[i]) == node.GetName() {
			out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: list.Items[i].Name}})
		}
	}
	return out
}

// stateChanged drops the changes of a Node that show nothing of its quarantine.
func stateChanged(e event.UpdateEvent) bool {
	return e.ObjectOld.GetLabels()[nodemark.StateLabel] != e.ObjectNew.GetLabels()[nodemark.StateLabel] || e.ObjectOld.GetUID() != e.ObjectNew.GetUID()
}
