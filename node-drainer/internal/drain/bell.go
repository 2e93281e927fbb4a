package drain

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/node-drainer/plan"
)

// Bell rings the nodes in draining when the world changes for them: their
// Node, their pods, or a budget that refused one of them.
func (d *Drain) Bell(ctx context.Context, ring func(key string)) error {
	knock := func(node string) {
		if d.memory.knows(node) {
			ring(node)
		}
	}
	w := d.world
	remove, err := listen(
		listener{w.nodeInformer, onNode(knock)},
		listener{w.podInformer, onPod(knock)},
		listener{w.budgetInformer, d.onBudget(ring)},
	)
	if err != nil {
		return err
	}
	<-ctx.Done()
	return remove()
}

type listener struct {
	informer cache.SharedIndexInformer
	handler  cache.ResourceEventHandler
}

// listen adds the handlers; remove takes them away again.
func listen(listeners ...listener) (remove func() error, err error) {
	var removals []func() error
	remove = func() error {
		var problems []error
		for _, r := range removals {
			problems = append(problems, r())
		}
		return errors.Join(problems...)
	}
	for _, l := range listeners {
		registration, err := l.informer.AddEventHandler(l.handler)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("listening to changes: %w", err), remove())
		}
		removals = append(removals, func() error { return l.informer.RemoveEventHandler(registration) })
	}
	return remove, nil
}

func onNode(knock func(string)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if n, ok := obj.(*corev1.Node); ok {
				knock(n.Name)
			}
		},
		UpdateFunc: func(before, after any) {
			a, okA := before.(*corev1.Node)
			b, okB := after.(*corev1.Node)
			if okA && okB && (a.UID != b.UID || !sameFacts(a, b)) {
				knock(b.Name)
			}
		},
		DeleteFunc: func(obj any) {
			if n, ok := last[*corev1.Node](obj); ok {
				knock(n.Name)
			}
		},
	}
}

// sameFacts compares what a plan sees, but for the state label, which this
// room and fault-remediation write themselves, and for the taint by which
// Kubernetes follows a cordon, which says nothing that the cordon does not.
func sameFacts(a, b *corev1.Node) bool { return reflect.DeepEqual(telling(a), telling(b)) }

func telling(node *corev1.Node) plan.Node {
	facts := plan.NodeOf(node)
	facts.State = ""
	facts.Taints = slices.DeleteFunc(facts.Taints, func(t record.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable })
	if len(facts.Taints) == 0 {
		facts.Taints = nil
	}
	return facts
}

func onPod(knock func(string)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if p, ok := obj.(*corev1.Pod); ok {
				knock(p.Spec.NodeName)
			}
		},
		UpdateFunc: func(before, after any) {
			a, okA := before.(*corev1.Pod)
			b, okB := after.(*corev1.Pod)
			if okA && okB && podChanged(a, b) {
				knock(b.Spec.NodeName)
			}
		},
		DeleteFunc: func(obj any) {
			if p, ok := last[*corev1.Pod](obj); ok {
				knock(p.Spec.NodeName)
			}
		},
	}
}

// podChanged says whether a plan could see a difference.
func podChanged(a, b *corev1.Pod) bool {
	return a.UID != b.UID || a.Spec.NodeName != b.Spec.NodeName || a.Status.Phase != b.Status.Phase ||
		!a.DeletionTimestamp.Equal(b.DeletionTimestamp) || ready(a) != ready(b) ||
		a.Annotations[nodemark.DevicesAnnotation] != b.Annotations[nodemark.DevicesAnnotation]
}

func ready(p *corev1.Pod) corev1.ConditionStatus {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status
		}
	}
	return ""
}

// onBudget rings the nodes that a budget kept waiting when it may allow a
// disruption again.
func (d *Drain) onBudget(ring func(string)) cache.ResourceEventHandler {
	ringAll := func(name string) {
		for _, node := range d.memory.refusedBy(name) {
			ring(node)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, after any) {
			if pdb, ok := after.(*policyv1.PodDisruptionBudget); ok {
				if b := seen(pdb); b.allows {
					ringAll(b.name)
				}
			}
		},
		DeleteFunc: func(obj any) {
			if pdb, ok := last[*policyv1.PodDisruptionBudget](obj); ok {
				ringAll(seen(pdb).name)
			}
		},
	}
}

// last is the object of a deletion, whose news may have come late.
func last[T any](obj any) (T, bool) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	o, ok := obj.(T)
	return o, ok
}
