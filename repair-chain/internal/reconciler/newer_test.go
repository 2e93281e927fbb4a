package reconciler

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/localcluster"
)

// lenient has a schema take members that it does not name, at every level, as the schema
// of a newer version takes its own.
func lenient(schema any) {
	switch s := schema.(type) {
	case map[string]any:
		if _, object := s["properties"]; object {
			s["x-kubernetes-preserve-unknown-fields"] = true
		}
		for _, below := range s {
			lenient(below)
		}
	case []any:
		for _, below := range s {
			lenient(below)
		}
	}
}

// TestAStatusOfANewerVersion: on a real API server, an older controller's update of a run
// keeps what a newer one has written of it and of its steps, and loses the race against
// somebody who came between.
func TestAStatusOfANewerVersion(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	text, err := os.ReadFile("../../../distros/helm/nvsentinel/crds/nvsentinel.dgxc.nvidia.com_repairruns.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var definition map[string]any
	if err := yaml.Unmarshal(text, &definition); err != nil {
		t.Fatal(err)
	}
	versions, _, _ := unstructured.NestedSlice(definition, "spec", "versions")
	for _, v := range versions {
		if schema, ok := v.(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any); ok { //nolint:forcetypeassert // a definition
			lenient(schema["properties"].(map[string]any)["status"]) //nolint:forcetypeassert // a definition
		}
	}
	if err := unstructured.SetNestedSlice(definition, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	if text, err = json.Marshal(definition); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Apply(t.Context(), bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	live, err := Live(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	run := runOfChain("newer", "none")
	if err := live.Create(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = live.Delete(t.Context(), run) })
	runs := cluster.Dynamic().Resource(v1alpha1.GroupVersion.WithResource("repairruns"))
	raw, err := runs.Get(t.Context(), run.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	raw.Object["status"] = map[string]any{"newer": map[string]any{"x": int64(1)}, "steps": []any{
		map[string]any{"name": "one", "state": "Running", "newer": "of one"}, map[string]any{"name": "two", "state": "Running", "newer": "of two"},
	}}
	if _, err := runs.UpdateStatus(t.Context(), raw, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := live.Get(t.Context(), client.ObjectKeyFromObject(run), run); err != nil {
		t.Fatal(err)
	}
	stale := run.DeepCopy()
	run.Status.Steps[1].State = "Done"
	run.Status.Steps = append(run.Status.Steps, v1alpha1.StepStatus{Name: "three", State: "Waiting"})
	if err := live.Status().Update(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	if raw, err = runs.Get(t.Context(), run.Name, metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	steps, _, _ := unstructured.NestedSlice(raw.Object, "status", "steps")
	if len(steps) != 3 {
		t.Fatalf("the status is %v", raw.Object["status"])
	}
	for i, want := range []any{"of one", "of two", nil} {
		if got := steps[i].(map[string]any)["newer"]; got != want { //nolint:forcetypeassert // a step
			t.Errorf("step %d has %v, want %v", i, got, want)
		}
	}
	if n, _, _ := unstructured.NestedInt64(raw.Object, "status", "newer", "x"); n != 1 || steps[1].(map[string]any)["state"] != "Done" { //nolint:forcetypeassert // a step
		t.Errorf("the status is %v", raw.Object["status"])
	}
	if raw.GetResourceVersion() != run.ResourceVersion {
		t.Errorf("the object is of version %s, the server has %s", run.ResourceVersion, raw.GetResourceVersion())
	}
	if err := live.Status().Update(t.Context(), stale); !apierrors.IsConflict(err) {
		t.Errorf("an update of an older object: %v", err)
	}
}
