package remediation_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nvidia/nvsentinel/internal/remediation"
)

// TestOwn: name, owners and marks are ours, whatever a template states.
func TestOwn(t *testing.T) {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Widget", "spec": map[string]any{"a": "b"}, "status": map[string]any{"done": true},
		"metadata": map[string]any{
			"name": "template", "generateName": "template-", "namespace": "template",
			"labels":          map[string]any{"app": "template", remediation.ManagedByLabel: "template"},
			"annotations":     map[string]any{"note": "template", remediation.RecordAnnotation: "template", remediation.GroupAnnotation: "template"},
			"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "template", "uid": "t"}},
		},
	}}
	remediation.Identity{
		Name: "n", Namespace: "ns", Owners: []metav1.OwnerReference{{APIVersion: "x/v1", Kind: "Run", Name: "r", UID: "u"}},
		Labels: map[string]string{"run": "r"}, Annotations: map[string]string{remediation.RecordAnnotation: "record", remediation.GroupAnnotation: ""},
	}.Own(o)
	want := map[string]any{
		"apiVersion": "v1", "kind": "Widget", "spec": map[string]any{"a": "b"},
		"metadata": map[string]any{
			"name": "n", "namespace": "ns",
			"labels":          map[string]any{"app": "template", "run": "r", remediation.ManagedByLabel: "nvsentinel"},
			"annotations":     map[string]any{"note": "template", remediation.RecordAnnotation: "record", remediation.GroupAnnotation: "template"},
			"ownerReferences": []any{map[string]any{"apiVersion": "x/v1", "kind": "Run", "name": "r", "uid": "u"}},
		},
	}
	if diff := cmp.Diff(want, o.Object); diff != "" {
		t.Error(diff)
	}
	bare := &unstructured.Unstructured{Object: map[string]any{}}
	if (remediation.Identity{Name: "n"}).Own(bare); bare.GetName() != "n" || bare.GetLabels()[remediation.ManagedByLabel] != remediation.ManagedBy {
		t.Errorf("%v", bare.Object)
	}
}
