package reconciler

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/nodelease"
)

var runKind = schema.GroupVersionKind{Group: "nvsentinel.dgxc.nvidia.com", Version: "v1alpha1", Kind: "RepairRun"}

// chained makes a template of runs of a chain, one of several for a node.
func (w *world) chained(name string) v1alpha1.TemplateReference {
	w.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"chain": name}}}}}
	o.SetGroupVersionKind(runKind.GroupVersion().WithKind(runKind.Kind + "Template"))
	o.SetName(w.prefix + "-" + name)
	o.SetAnnotations(map[string]string{v1alpha1.MultipleTemplatesAnnotation: "true"})
	if err := w.live.Create(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = w.live.Delete(context.WithoutCancel(w.t.Context()), o) })
	return v1alpha1.TemplateReference{APIVersion: runKind.GroupVersion().String(), Kind: runKind.Kind + "Template", Name: o.GetName()}
}

// setFinalizers keeps an object, as repair-chain does, or releases it.
func (w *world) setFinalizers(o *unstructured.Unstructured, by ...string) {
	w.t.Helper()
	patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": by}})
	if err := w.live.Patch(w.t.Context(), o.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); err != nil {
		w.t.Fatal(err)
	}
}

// TestRunsOfRepairChains: a run is made that the API server takes, the next follows on
// one that failed, and the node is not healthy while a run waits for its objects.
func TestRunsOfRepairChains(t *testing.T) {
	w := newWorld(t, "chains")
	for _, file := range []string{"crds/nvsentinel.dgxc.nvidia.com_repairruns.yaml", "crds/nvsentinel.dgxc.nvidia.com_repairruntemplates.yaml", "manifests/repair-chain-remediation.yaml"} {
		text, err := os.Open(charts + file)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.cluster.Apply(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		_ = text.Close()
	}
	a := w.node("a")
	first, second := w.chained("gentle"), w.chained("harsh")
	name := w.check(func(s *v1alpha1.NodeHealthCheckSpec) {
		s.EscalatingRemediations = []v1alpha1.EscalatingRemediation{
			{RemediationTemplate: first, Order: 1, Timeout: metav1.Duration{Duration: time.Hour}},
			{RemediationTemplate: second, Order: 2, Timeout: metav1.Duration{Duration: time.Hour}},
		}
	})
	w.start(nil, nil)
	w.fall(a)
	w.settle(name, "the first chain is tried", remediations(1))
	run := w.objects(runKind)[0]
	spec, _, _ := unstructured.NestedMap(run.Object, "spec")
	if len(spec) != 1 || spec["chain"] != "gentle" || run.GetAnnotations()[v1alpha1.NodeNameAnnotation] != a || !strings.HasPrefix(run.GetName(), a+"-") {
		t.Errorf("made %v", run.Object)
	}
	w.setFinalizers(&run, "nvsentinel.dgxc.nvidia.com/step-objects")
	w.report(&run, v1alpha1.ConditionSucceeded, metav1.ConditionFalse)
	w.settle(name, "the second chain is tried", remediations(2))
	w.heal(a)
	s := w.settle(name, "the second is gone", func(v1alpha1.NodeHealthCheckStatus) bool { return len(w.objects(runKind)) == 1 })
	if *s.HealthyNodes != 0 {
		t.Errorf("the node counts as healthy while its run is there: %+v", s)
	}
	if _, err := w.cluster.Client().CoordinationV1().Leases(w.leases).Get(t.Context(), nodelease.Name(a), metav1.GetOptions{}); err != nil {
		t.Errorf("its lease: %v", err)
	}
	w.setFinalizers(&run)
	w.settle(name, "all is well", func(s v1alpha1.NodeHealthCheckStatus) bool {
		return s.Phase == v1alpha1.PhaseEnabled && *s.HealthyNodes == 1 && len(w.objects(runKind)) == 0
	})
}
