package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/nvidia/nvsentinel/internal/localcluster"
)

// TestUpgradeOfDefinitions: changed definitions are applied in Helm's name, as
// docs/tasks/upgrade.md describes, and the release can be upgraded, removed and installed again.
// Applied under another name they would conflict with Helm's.
func TestUpgradeOfDefinitions(t *testing.T) {
	cluster, err := localcluster.Start(t.Context(), localcluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Stop() })
	next := t.TempDir()
	if err := os.CopyFS(next, os.DirFS(chartDir)); err != nil {
		t.Fatal(err)
	}
	definition := changed(t, filepath.Join(next, "crds/janitor.dgxc.nvidia.com_rebootnodes.yaml"))
	release := func(do string, args ...string) {
		t.Helper()
		args = append([]string{do, "nvsentinel", "--namespace=nvsentinel", "--kubeconfig=" + cluster.AdminKubeconfig()}, args...)
		if _, problems, err := helm(t, args...); err != nil {
			t.Fatalf("helm %s: %s", do, problems)
		}
	}
	apply := func(manager string) error {
		kind := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
		_, err := cluster.Dynamic().Resource(kind).Apply(t.Context(), definition.GetName(), definition, metav1.ApplyOptions{FieldManager: manager})
		return err
	}
	release("install", chartDir, file("nothing"), "--create-namespace")
	if err := apply("kubectl"); !apierrors.IsConflict(err) {
		t.Errorf("applied as kubectl: %v, want a conflict", err)
	}
	if err := apply("helm"); err != nil {
		t.Fatal(err)
	}
	release("upgrade", next, file("nothing"))
	release("uninstall")
	release("install", next, file("nothing"))
	text, err := os.ReadFile(filepath.Join(root, "docs/tasks/upgrade.md"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "`kubectl apply --server-side --field-manager=helm -f distros/helm/nvsentinel/crds`"; !strings.Contains(string(text), want) {
		t.Errorf("docs/tasks/upgrade.md does not say %s", want)
	}
}

// changed gives the definition in a file another description.
func changed(t *testing.T, path string) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	definition := decode(t, string(text))[0]
	versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
	if err != nil {
		t.Fatal(err)
	}
	version, _ := versions[0].(map[string]any)
	if err := unstructured.SetNestedField(version, "changed", "schema", "openAPIV3Schema", "description"); err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	if text, err = yaml.Marshal(definition.Object); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return definition
}
