package chart

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestPageOfCustomResources: docs/reference/crds.md has every field of the specs and statuses
// of the definitions that the chart brings.
func TestPageOfCustomResources(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/reference/crds.md"))
	if err != nil {
		t.Fatal(err)
	}
	fields := 0
	for _, folder := range []string{"crds", "manifests/crds"} {
		files, err := filepath.Glob(filepath.Join(chartDir, folder, "*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", folder, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, definition := range decode(t, string(text)) {
				for _, field := range fieldsOf(t, definition) {
					if fields++; !strings.Contains(string(page), "\n| `"+field+"` _") {
						t.Errorf("docs/reference/crds.md lacks the field %s of %s: run make generate", field, definition.GetName())
					}
				}
			}
		}
	}
	if fields < 50 {
		t.Errorf("only %d fields were found", fields)
	}
}

// fieldsOf are the fields directly below spec and status.
func fieldsOf(t *testing.T, definition *unstructured.Unstructured) (out []string) {
	t.Helper()
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, version := range versions {
		for _, part := range []string{"spec", "status"} {
			properties, _, err := unstructured.NestedMap(version.(map[string]any), "schema", "openAPIV3Schema", "properties", part, "properties")
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, slices.Sorted(maps.Keys(properties))...)
		}
	}
	return out
}
