package reconciler

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// finalizer is what remediators put on their objects, to finish before those go.
const finalizer = "example.com/remediator"

// finalizers of the remediation of a node are those of a remediator that works, or none
// when it has ended.
func (w *world) finalizers(node string, all ...string) {
	w.t.Helper()
	patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": all}})
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(rebootKind)
	o.SetName(node)
	if err := w.live.Patch(w.t.Context(), o, client.RawPatch(types.MergePatchType, patch)); err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
}

// works is a remediator that takes the node's object on, and ends with the test.
func (w *world) works(node string) {
	w.t.Helper()
	w.finalizers(node, finalizer)
	w.t.Cleanup(func() {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(rebootKind)
		o.SetName(node)
		_ = w.live.Patch(context.WithoutCancel(w.t.Context()), o, patch)
		_ = w.live.Delete(context.WithoutCancel(w.t.Context()), o)
	})
}

// move relabels a node.
func (w *world) move(node, pool string) {
	w.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if err := w.live.Patch(w.t.Context(), n, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"pool":"`+pool+`"}}}`))); err != nil {
		w.t.Fatal(err)
	}
}

// waits matches a status that lists the node, has nothing begun, and names the object.
func waits(node string) func(v1alpha1.NodeHealthCheckStatus) bool {
	return func(s v1alpha1.NodeHealthCheckStatus) bool {
		return len(s.UnhealthyNodes) == 1 && s.UnhealthyNodes[0].Name == node && len(s.UnhealthyNodes[0].Remediations) == 0 &&
			strings.Contains(s.UnhealthyNodes[0].Waiting, "RebootNode "+node+" ") && strings.Contains(s.Reason, "1 pending: a remediation object of another owner exists")
	}
}

// takenOver waits until the check has made the node's remediation itself.
func (w *world) takenOver(name, node string) {
	w.t.Helper()
	w.settle(name, "it takes the node over", remediations(1))
	made := &unstructured.Unstructured{}
	made.SetGroupVersionKind(rebootKind)
	if err := w.live.Get(w.t.Context(), types.NamespacedName{Name: node}, made); err != nil {
		w.t.Fatal(err)
	}
	if owners := made.GetOwnerReferences(); len(owners) != 1 || owners[0].Name != name {
		w.t.Errorf("the remediation is owned by %v", owners)
	}
}

// warned waits for the Event about the object that is in the way.
func (w *world) warned(name string) {
	w.t.Helper()
	testkit.Until(w.t, waitTimeout, func() bool {
		for _, e := range w.eventsOf(name) {
			if e.Type == corev1.EventTypeWarning && e.Reason == "RemediationSkipped" && strings.Contains(e.Message, "was not created by this check") {
				return true
			}
		}
		return false
	})
}

// A node moves to the pool of another check with the same template, while the first
// check's remediation, whose remediator has a finalizer, is not gone.
func TestANodeThatMovesToAnotherCheck(t *testing.T) {
	one, two := newWorld(t, "move-a"), newWorld(t, "move-b")
	two.leases = one.leases
	a := one.node("a")
	ref := one.template(rebootKind, "")
	first := one.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &ref })
	second := two.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &ref })
	one.fall(a)
	one.start(nil, nil)
	one.settle(first, "the first check remediates", remediations(1))
	one.works(a)
	one.move(a, two.prefix)
	two.settle(second, "the second check waits and says so", waits(a))
	two.warned(second)
	one.finalizers(a)
	two.takenOver(second, a)
	one.settle(first, "the first check has let it go", func(s v1alpha1.NodeHealthCheckStatus) bool { return len(s.UnhealthyNodes) == 0 })
}

// A person creates a remediation and deletes it again.
func TestARemediationMadeByAPerson(t *testing.T) {
	w := newWorld(t, "person")
	a := w.node("a")
	ref := w.template(rebootKind, "")
	name := w.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &ref })
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"nodeName": a}}}
	o.SetGroupVersionKind(rebootKind)
	o.SetName(a)
	if err := w.live.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	w.works(a)
	w.fall(a)
	w.start(nil, nil)
	w.settle(name, "it waits and says so", waits(a))
	w.warned(name)
	if err := w.live.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	w.finalizers(a)
	w.takenOver(name, a)
}

// Two checks of one template select a node; the first lets it go.
func TestTwoChecksOfANode(t *testing.T) {
	one, two := newWorld(t, "both-a"), newWorld(t, "both-b")
	two.leases = one.leases
	a := one.node("a")
	ref := one.template(rebootKind, "")
	first := one.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &ref })
	one.fall(a)
	one.start(nil, nil)
	one.settle(first, "the first check remediates", remediations(1))
	one.works(a)
	second := two.check(func(s *v1alpha1.NodeHealthCheckSpec) {
		s.RemediationTemplate = &ref
		s.Selector = v1alpha1.NodeSelector{MatchExpressions: []v1alpha1.NodeRequirement{
			{Key: "pool", Operator: metav1.LabelSelectorOpIn, Values: []v1alpha1.LabelValue{v1alpha1.LabelValue(one.prefix), v1alpha1.LabelValue(two.prefix)}},
		}}
	})
	two.settle(second, "the second check waits and says so", waits(a))
	one.move(a, two.prefix)
	one.settle(first, "the first check waits for its remediation to go", func(s v1alpha1.NodeHealthCheckStatus) bool { return *s.ObservedNodes == 0 })
	two.settle(second, "the second check waits still", waits(a))
	one.finalizers(a)
	two.takenOver(second, a)
}
