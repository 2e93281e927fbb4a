package gpureset

import (
	"context"
	"fmt"
	"reflect"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/controller"
	"github.com/nvidia/nvsentinel/janitor/internal/reconciler"
	"github.com/nvidia/nvsentinel/janitor/repair"
	"github.com/nvidia/nvsentinel/janitor/reset"
)

// Kind of the objects.
const Kind = "GPUReset"

// byNode indexes open objects by the node they are for.
const byNode = "spec.nodeName"

var _ reconciler.Member = (*Reconciler)(nil)

// Unserved is why the objects can not be read; empty when they can.
func (c *Reconciler) Unserved(ctx context.Context) string {
	return controller.Unserved(ctx, c.Objects, map[string]client.ObjectList{Kind: &v1alpha1.GPUResetList{}})
}

// Caches are of the pods of the GPU services and of the janitor's Jobs: they enqueue resets,
// and no more; what is decided by is read at the API server itself.
func (c *Reconciler) Caches() map[client.Object]cache.ByObject {
	services, err := labels.Parse(c.Services.selector())
	if err != nil {
		services = labels.Nothing() // the clock does it instead
	}
	return map[client.Object]cache.ByObject{
		&corev1.Pod{}: {
			Namespaces: map[string]cache.Config{c.Services.Namespace: {}}, Label: services, Transform: barePod,
		},
		&batchv1.Job{}: {
			Namespaces: map[string]cache.Config{c.Tool.Namespace: {}}, Label: labels.SelectorFromSet(jobLabels()),
		},
	}
}

// barePod keeps of a pod what a reset is enqueued by.
func barePod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	return &corev1.Pod{
		TypeMeta: pod.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			Labels: pod.Labels, DeletionTimestamp: pod.DeletionTimestamp,
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, Conditions: pod.Status.Conditions},
	}, nil
}

// Register adds the controller to a manager.
func (c *Reconciler) Register(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.GPUReset{}, byNode, nodeOfOpen); err != nil {
		return fmt.Errorf("indexing objects by node: %w", err)
	}
	objects := mgr.GetClient()
	onNode := func(ctx context.Context, node client.Object) []reconcile.Request {
		return c.objectsOf(ctx, objects, node.GetName())
	}
	ofPod := func(ctx context.Context, object client.Object) []reconcile.Request {
		if pod, ok := object.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
			return c.objectsOf(ctx, objects, pod.Spec.NodeName)
		}
		return nil
	}
	err := ctrl.NewControllerManagedBy(mgr).Named("gpureset").
		For(&v1alpha1.GPUReset{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: byOthers})).
		Owns(&batchv1.Job{}).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(onNode), builder.WithPredicates(predicate.Funcs{UpdateFunc: c.relevant})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ofPod)).
		WithOptions(options).Complete(c)
	if err != nil {
		return fmt.Errorf("adding the controller of %s: %w", Kind, err)
	}
	return controller.Fill(ctx, mgr, &batchv1.Job{}, &corev1.Pod{})
}

// nodeOfOpen is the index of open objects by their node.
func nodeOfOpen(o client.Object) []string {
	object, ok := o.(*v1alpha1.GPUReset)
	if !ok || object.Status.CompletionTime != nil {
		return nil
	}
	return []string{object.Spec.NodeName}
}

// objectsOf lists the open objects of a Node.
func (c *Reconciler) objectsOf(ctx context.Context, cached client.Reader, node string) []reconcile.Request {
	var list v1alpha1.GPUResetList
	if err := cached.List(ctx, &list, client.MatchingFields{byNode: node}); err != nil {
		c.Log.Warn("listing a node's objects failed; they are looked at by the clock", "node", node, "error", err)
	}
	var out []reconcile.Request
	for i := range list.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return out
}

// byOthers drops an object's changes that are the janitor's own.
func byOthers(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.GPUReset)
	after, ok2 := e.ObjectNew.(*v1alpha1.GPUReset)
	if !ok || !ok2 {
		return true
	}
	was, is := objectFacts(before), objectFacts(after)
	return before.Generation != after.Generation || was.Session != is.Session || was.Deleting != is.Deleting || was.ByHand != is.ByHand
}

// relevant drops a Node's changes that no decision depends on.
func (c *Reconciler) relevant(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.Node)
	after, ok2 := e.ObjectNew.(*corev1.Node)
	return !ok || !ok2 || !reflect.DeepEqual(c.facts(before), c.facts(after))
}

// facts are those of a Node that decisions depend on.
func (c *Reconciler) facts(node *corev1.Node) (n struct {
	repair.Node
	down     string
	services []reset.Service
}) {
	n.Node, n.down, n.services = reconciler.NodeFacts(node), downOf(node), c.Services.facts(node, nil)
	return n
}
