package gpureset

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/janitor/internal/reconciler"
	"github.com/nvidia/nvsentinel/janitor/reset"
)

// Kind of the objects.
const Kind = "GPUReset"

var _ reconciler.Member = (*Reconciler)(nil)

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

// watch has a reset enqueued by its Job and by the pods of the services on its Node.
func watch(b *builder.Builder, ofNode func(func(client.Object) string) handler.EventHandler) {
	b.Owns(&batchv1.Job{}).Watches(&corev1.Pod{}, ofNode(func(o client.Object) string {
		if pod, ok := o.(*corev1.Pod); ok {
			return pod.Spec.NodeName
		}
		return ""
	}))
}

// byOthers reports whether an object's change is not the janitor's own.
func byOthers(before, after *v1alpha1.GPUReset) bool {
	was, is := objectFacts(before), objectFacts(after)
	return was.Session != is.Session || was.Deleting != is.Deleting || was.ResetManually != is.ResetManually
}

// nodeFacts are those of a Node that decisions depend on.
func (c *Reconciler) nodeFacts(node *corev1.Node) any {
	return reset.Node{Node: reconciler.NodeFacts(node), Down: downOf(node), Services: c.Services.facts(node, nil)}
}
