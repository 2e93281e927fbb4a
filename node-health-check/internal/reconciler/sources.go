package reconciler

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/nodelease"
)

// gathering is how long a change of a node waits for those of others: a pass looks at
// all nodes of its check, which takes tens of milliseconds at 10,000, and of many that
// change at once one pass sees them all. A condition has lasted for minutes before
// anything is done about it.
const gathering = time.Second

// queue is where checks wait for a pass; one that waits already is not added again.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// mapper maps a change to the checks it matters to.
type mapper struct {
	checks client.Reader // cached, and Nodes
	log    *slog.Logger
}

// enqueue enqueues a pass, after a while, for each check for which matters returns true; a
// pass that is due earlier stays so.
func (m *mapper) enqueue(ctx context.Context, q queue, after time.Duration, matters func(*v1alpha1.NodeHealthCheck) bool) {
	list := &v1alpha1.NodeHealthCheckList{}
	if err := m.checks.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		m.log.Warn("checks not listed, polling them", "error", err)
		return
	}
	for i := range list.Items {
		if matters(&list.Items[i]) {
			q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: list.Items[i].Name}}, after)
		}
	}
}

// ofNodes: a node matters to the checks that select it, or did.
func (m *mapper) ofNodes() handler.EventHandler {
	selecting := func(objects ...client.Object) func(*v1alpha1.NodeHealthCheck) bool {
		return func(c *v1alpha1.NodeHealthCheck) bool {
			selector, err := c.Spec.Selector.Labels()
			return err != nil || slices.ContainsFunc(objects, func(o client.Object) bool { return selector.Matches(labels.Set(o.GetLabels())) })
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			m.enqueue(ctx, q, gathering, selecting(e.Object))
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			m.enqueue(ctx, q, gathering, selecting(e.ObjectOld, e.ObjectNew))
		},
		DeleteFunc: func(ctx context.Context, _ event.DeleteEvent, q queue) {
			m.enqueue(ctx, q, gathering, func(*v1alpha1.NodeHealthCheck) bool { return true })
		},
	}
}

// ofTemplates: a template matters to the checks that refer to it.
func (m *mapper) ofTemplates() handler.EventHandler {
	referring := func(o client.Object) func(*v1alpha1.NodeHealthCheck) bool {
		kind := o.GetObjectKind().GroupVersionKind()
		return func(c *v1alpha1.NodeHealthCheck) bool {
			return slices.ContainsFunc(references(c), func(ref v1alpha1.TemplateReference) bool {
				return templateKind(ref) == kind && ref.Name == o.GetName()
			})
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { m.enqueue(ctx, q, 0, referring(e.Object)) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { m.enqueue(ctx, q, 0, referring(e.ObjectNew)) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { m.enqueue(ctx, q, 0, referring(e.Object)) },
	}
}

// ofRemediations: a remediation matters to the check that owns it. One that is made
// is ours, and its pass knows of it.
func (m *mapper) ofRemediations() handler.EventHandler {
	owner := func(o client.Object, q queue) {
		for _, ref := range o.GetOwnerReferences() {
			if isCheck(ref) {
				q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: ref.Name}})
			}
		}
	}
	return handler.Funcs{
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { owner(e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			owner(e.Object, q)
			m.freed(ctx, q, e.Object)
		},
	}
}

// freed has a pass made over the checks that may have waited for the end of a remediation
// that was not theirs: it is of a kind that they make, and its node is one of theirs.
func (m *mapper) freed(ctx context.Context, q queue, o client.Object) {
	kind, nodes := o.GetObjectKind().GroupVersionKind(), []string{o.GetName(), o.GetAnnotations()[v1alpha1.NodeNameAnnotation]}
	selecting := m.selecting(ctx, nodes...)
	m.enqueue(ctx, q, 0, func(c *v1alpha1.NodeHealthCheck) bool {
		return slices.ContainsFunc(references(c), func(ref v1alpha1.TemplateReference) bool { return remediationKind(ref) == kind }) && selecting(c)
	})
}

// selecting returns a function that reports whether a check selects one of the named nodes, as
// the cache has them.
func (m *mapper) selecting(ctx context.Context, names ...string) func(*v1alpha1.NodeHealthCheck) bool {
	var there []labels.Set
	for _, name := range names {
		n := &corev1.Node{}
		if name != "" && m.checks.Get(ctx, types.NamespacedName{Name: name}, n) == nil {
			there = append(there, n.Labels)
		}
	}
	return func(c *v1alpha1.NodeHealthCheck) bool {
		selector, err := c.Spec.Selector.Labels()
		return err == nil && slices.ContainsFunc(there, func(l labels.Set) bool { return selector.Matches(l) })
	}
}

// ofLeases: a lease that is dropped matters to the checks that select its node and may
// have waited for it. One that runs out is noticed by the clock.
func (m *mapper) ofLeases() handler.EventHandler {
	return handler.Funcs{DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
		if node, is := strings.CutPrefix(e.Object.GetName(), nodelease.Name("")); is {
			m.enqueue(ctx, q, gathering, m.selecting(ctx, node))
		}
	}}
}

// nodeChanged drops the changes of a Node that no decision depends on: heartbeats
// above all.
func nodeChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.Node)
	after, ok2 := e.ObjectNew.(*corev1.Node)
	if !ok || !ok2 {
		return true
	}
	_, was := before.Annotations[v1alpha1.ConfirmedHealthyAnnotation]
	_, is := after.Annotations[v1alpha1.ConfirmedHealthyAnnotation]
	return was != is || !maps.Equal(before.Labels, after.Labels) || !sameConditions(before, after) ||
		len(before.Spec.Taints) != len(after.Spec.Taints) || before.UID != after.UID
}

// sameConditions compares what Classify reads, in whatever order it stands.
func sameConditions(a, b *corev1.Node) bool {
	if len(a.Status.Conditions) != len(b.Status.Conditions) {
		return false
	}
	for _, one := range a.Status.Conditions {
		if !slices.ContainsFunc(b.Status.Conditions, func(other corev1.NodeCondition) bool {
			return one.Type == other.Type && one.Status == other.Status && one.LastTransitionTime.Equal(&other.LastTransitionTime)
		}) {
			return false
		}
	}
	return true
}

// remediationChanged drops the changes of a remediation that no decision depends on.
func remediationChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*unstructured.Unstructured)
	after, ok2 := e.ObjectNew.(*unstructured.Unstructured)
	return !ok || !ok2 || factsOf(before, "") != factsOf(after, "")
}
