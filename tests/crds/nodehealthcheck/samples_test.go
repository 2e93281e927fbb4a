package nodehealthcheck_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
)

// TestExamples: an API server takes every example, and every selector means something.
func TestExamples(t *testing.T) {
	client := checks(t)
	files, err := filepath.Glob("../../../examples/node-health-check/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("examples %v, %v", files, err)
	}
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for dec := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
			o := &unstructured.Unstructured{}
			if err := dec.Decode(&o.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if o.GetKind() != v1alpha1.Kind {
				continue
			}
			found++
			if _, err := client.Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	if found < 8 {
		t.Errorf("only %d NodeHealthChecks", found)
	}
}
