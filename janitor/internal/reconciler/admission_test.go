package reconciler

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/localcluster"
)

func reboot(name, node string, change ...func(*v1alpha1.RebootNode)) *v1alpha1.RebootNode {
	object := &v1alpha1.RebootNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RebootNodeSpec{NodeName: node}}
	for _, c := range change {
		c(object)
	}
	return object
}

func ownedByNHC(r *v1alpha1.RebootNode) {
	r.OwnerReferences = []metav1.OwnerReference{{APIVersion: "remediation.medik8s.io/v1alpha1", Kind: v1alpha1.NodeHealthCheckKind, Name: "nhc", UID: "nhc-uid"}}
}

func annotated(node string) func(*v1alpha1.RebootNode) {
	return func(r *v1alpha1.RebootNode) { r.Annotations = map[string]string{v1alpha1.NodeNameAnnotation: node} }
}

// What the definition of the kind itself refuses, on the real API server.
func TestSpecIsChecked(t *testing.T) {
	w := newWorld(t)
	name := w.prefix + "r"
	w.store(reboot(name, "n"))
	for what, change := range map[string]func(*v1alpha1.RebootNode){
		"another node": func(r *v1alpha1.RebootNode) { r.Spec.NodeName = "other" },
		"no node":      func(r *v1alpha1.RebootNode) { r.Spec.NodeName = "" },
	} {
		object := &v1alpha1.RebootNode{}
		if err := w.objects.Get(t.Context(), client.ObjectKey{Name: name}, object); err != nil {
			t.Fatal(err)
		}
		change(object)
		if err := w.objects.Update(t.Context(), object); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "nodeName is immutable") {
			t.Errorf("an object turned to %s: %v, want it refused as immutable", what, err)
		}
	}
	if err := w.objects.Create(t.Context(), reboot(w.prefix+"long", strings.Repeat("n", 254))); !apierrors.IsInvalid(err) {
		t.Errorf("a name that no node can have: %v, want it refused", err)
	}
	template := &v1alpha1.RebootNodeTemplate{ObjectMeta: metav1.ObjectMeta{Name: w.prefix + "t"}}
	if err := w.objects.Create(t.Context(), template); err != nil {
		t.Errorf("a template without a node: %v", err)
	}
	t.Cleanup(func() { _ = w.objects.Delete(context.WithoutCancel(t.Context()), template) })
}

// The admission policy refuses an object that names no node, on a real API
// server without any webhook.
func TestAdmissionPolicy(t *testing.T) {
	w := newWorld(t)
	text, err := os.Open("../../../distros/helm/nvsentinel/manifests/admission.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	if err := w.cluster.Apply(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	create := func(r *v1alpha1.RebootNode) error {
		err := w.objects.Create(t.Context(), r)
		if err == nil {
			err = w.objects.Delete(t.Context(), r)
		}
		return err
	}
	nameless := w.prefix + "nameless"
	deadline := time.After(2 * time.Minute)
	for { // a new policy is active a little later
		if err := create(reboot(nameless, "")); err != nil {
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.nodeName is missing; only an object") {
				t.Fatalf("an object for no node: %v, want it refused with what is missing", err)
			}
			break
		}
		select {
		case <-deadline:
			t.Fatal("an object for no node is admitted")
		case <-time.After(50 * time.Millisecond):
		}
	}
	if err := create(reboot(nameless, "n", annotated("m"))); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "name two nodes") {
		t.Errorf("an object for two nodes: %v, want it refused", err)
	}
	for what, object := range map[string]*v1alpha1.RebootNode{
		"of a person": reboot(nameless, "n"), "of a NodeHealthCheck": reboot(nameless, "", ownedByNHC),
		"annotated": reboot(nameless, "", annotated("n")), "named twice": reboot(nameless, "n", annotated("n")),
	} {
		if err := create(object); err != nil {
			t.Errorf("an object %s: %v, want it admitted", what, err)
		}
	}
}

// An object of a NodeHealthCheck is for the Node it is named after, or that its
// annotation names, and stays for that one; it has no time to live, and ends
// when its owner gives it up.
func TestObjectsOfANodeHealthCheck(t *testing.T) {
	w := newWorld(t)
	w.policy.TTL = time.Hour
	w.restart()
	w.addNode(localcluster.NodeSpec{Name: "n", BootID: "b1"})
	w.addNode(localcluster.NodeSpec{Name: "m", BootID: "b1"})
	w.addNode(localcluster.NodeSpec{Name: "o", BootID: "b1"})
	w.store(reboot(w.prefix+"n", "", ownedByNHC))
	w.store(reboot(w.prefix+"generated", "", ownedByNHC, annotated(w.prefix+"m")))
	w.store(reboot(w.prefix+"o", "", annotated(w.prefix+"o")))
	unowned := w.object("o")
	unowned.SetAnnotations(nil)
	if err := w.objects.Update(t.Context(), unowned); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"n", "generated", "o"} {
		w.mustReconcile(name)
	}
	w.wantSignals(2)
	if got := []string{w.plugin.signals[0].Node, w.plugin.signals[1].Node}; got[0] != w.prefix+"n" || got[1] != w.prefix+"m" {
		t.Errorf("signals went to %q", got)
	}
	unnamed := meta.FindStatusCondition(w.object("o").Progress().Conditions, v1alpha1.ConditionSignalSent)
	if unnamed == nil || unnamed.Status != metav1.ConditionFalse || unnamed.Reason != v1alpha1.ReasonNodeUnnamed {
		t.Errorf("an object that nobody owns and that has the name of a node: %v, want SignalSent=False/NodeNameMissing", unnamed)
	}

	turned := w.object("generated")
	turned.SetAnnotations(map[string]string{v1alpha1.NodeNameAnnotation: w.prefix + "o"})
	if err := w.objects.Update(t.Context(), turned); err != nil {
		t.Fatal(err)
	}
	w.boot("m", "b2")
	w.mustReconcile("generated")
	w.wantSignals(2)
	if c := w.object("generated").Progress().Conditions; !meta.IsStatusConditionTrue(c, v1alpha1.ConditionNodeReady) {
		t.Errorf("an annotation that changed later turned the object: %v", c)
	}
	w.clock.Step(2 * time.Hour)
	w.mustReconcile("generated")
	if w.object("generated") == nil {
		t.Error("the janitor removed an object that its NodeHealthCheck removes")
	}

	given := w.object("n")
	given.SetAnnotations(map[string]string{v1alpha1.TimedOutAnnotation: "2026-03-01T12:00:00Z"})
	if err := w.objects.Update(t.Context(), given); err != nil {
		t.Fatal(err)
	}
	w.mustReconcile("n")
	end := meta.FindStatusCondition(w.object("n").Progress().Conditions, v1alpha1.ConditionSucceeded)
	if end == nil || end.Status != metav1.ConditionFalse || end.Reason != v1alpha1.ReasonTimedOutByNHC {
		t.Errorf("given up, but Succeeded is %v", end)
	}
	if c := w.object("n"); c.Progress().CompletionTime == nil {
		t.Error("given up, but not ended")
	}
}
