package gpureset

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
)

// TestDefinition: what the API server takes of an object, and what it refuses without
// anybody else's help.
func TestDefinition(t *testing.T) {
	w := newWorld(t)
	const uuid, bus = "GPU-b850f46d-d5ea-c752-ddf3-c4453e44d3f7", "0000:18:00.0"
	many := func(one string, n int) []string { return strings.Fields(strings.Repeat(one+" ", n)) }
	for name, tt := range map[string]struct {
		object string
		node   string
		which  *v1alpha1.GPUSelector
		want   string // empty is taken
	}{
		"all":                       {"a", "n", nil, ""},
		"by uuid":                   {"b", "n", &v1alpha1.GPUSelector{UUIDs: many(uuid, 64)}, ""},
		"by bus id":                 {"c", "n", &v1alpha1.GPUSelector{PCIBusIDs: []string{bus}}, ""},
		"both":                      {"d", "n", &v1alpha1.GPUSelector{UUIDs: []string{uuid}, PCIBusIDs: []string{bus}}, ""},
		"a long name":               {strings.Repeat("x", 53-len(w.prefix)), "n", nil, ""},
		"too long a name":           {strings.Repeat("y", 54-len(w.prefix)), "n", nil, "53 characters"},
		"no node":                   {"e", "", nil, "spec.nodeName"},
		"a selector of nothing":     {"f", "n", &v1alpha1.GPUSelector{}, "at least one GPU"},
		"too many":                  {"g", "n", &v1alpha1.GPUSelector{UUIDs: many(uuid, 65)}, "64 items"},
		"an index":                  {"h", "n", &v1alpha1.GPUSelector{UUIDs: []string{"0"}}, "should match"},
		"a list in an entry":        {"i", "n", &v1alpha1.GPUSelector{UUIDs: []string{uuid + "," + uuid}}, "Too long"},
		"a bus id without function": {"j", "n", &v1alpha1.GPUSelector{PCIBusIDs: []string{"0000:18:00"}}, "should match"},
	} {
		object := &v1alpha1.GPUReset{
			ObjectMeta: metav1.ObjectMeta{Name: w.prefix + tt.object}, Spec: v1alpha1.GPUResetSpec{NodeName: tt.node, Selector: tt.which},
		}
		err := w.objects.Create(t.Context(), object)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
		if err != nil {
			continue
		}
		if len(object.JobName()) > 63 {
			t.Errorf("%s: the Job's name %s is too long", name, object.JobName())
		}
		object.Spec.NodeName = "other"
		if err := w.objects.Update(t.Context(), object); err == nil || !strings.Contains(err.Error(), "immutable") {
			t.Errorf("%s: another node: %v", name, err)
		}
		if err := w.objects.Delete(t.Context(), object); err != nil {
			t.Error(err)
		}
	}
}
