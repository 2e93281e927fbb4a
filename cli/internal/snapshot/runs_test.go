package snapshot

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/kube"
)

// TestAnUndecodableObjectOfChainsHidesNoOther: the others are shown, and what is left out
// is named.
func TestAnUndecodableObjectOfChainsHidesNoOther(t *testing.T) {
	object := func(kind, name string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
		}}
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		v1alpha1.GroupVersion.WithResource("repairruns"):      "RepairRunList",
		v1alpha1.GroupVersion.WithResource("repairchains"):    "RepairChainList",
		v1alpha1.GroupVersion.WithResource("repairtemplates"): "RepairTemplateList",
	},
		object("RepairRun", "bad", map[string]any{"fault": map[string]any{"generatedTimestamp": "2026-03-01t12:00:00z"}}),
		object("RepairRun", "good", map[string]any{"chain": "c"}),
		object("RepairChain", "bad", map[string]any{"steps": []any{map[string]any{"timeout": "soon"}}}), object("RepairChain", "good", nil),
		object("RepairTemplate", "bad", map[string]any{"outputs": "none"}), object("RepairTemplate", "good", nil))
	s := Sources{Cluster: &kube.Client{Dynamic: client}, Within: time.Minute}
	runs, refused, err := chains(t.Context(), s.Cluster)
	if err != nil || len(runs) != 1 || runs[0].Name != "good" {
		t.Errorf("runs %v, %v", runs, err)
	}
	var named []string
	for _, r := range refused {
		named = append(named, r.Kind+" "+r.Name)
		if !strings.Contains(r.Message, "cannot be decoded") {
			t.Errorf("%s %s: %s", r.Kind, r.Name, r.Message)
		}
	}
	if got := strings.Join(named, ", "); got != "RepairRun bad, RepairChain bad, RepairTemplate bad" {
		t.Errorf("named are %s", got)
	}
	runs, source := s.Runs(t.Context())
	if len(runs) != 1 || !source.Read || !strings.Contains(source.Problem, "1 runs cannot be decoded and are left out, the first is bad") {
		t.Errorf("runs %v, source %+v", runs, source)
	}
}
