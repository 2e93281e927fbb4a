package gpureset

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
)

// TestTheJobOfAReset: job.golden.json is the Job as it is made, which tests/access has
// the API server's admission policy let through.
func TestTheJobOfAReset(t *testing.T) {
	tool := Tool{Namespace: "nvsentinel", Image: "example.com/gpu-reset:1", DriverRoot: "/run/nvidia/driver", Deadline: 5 * time.Minute}
	object := &v1alpha1.GPUReset{ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "u"}}
	object.Spec.NodeName = "gpu-1"
	object.Spec.Selector = &v1alpha1.GPUSelector{UUIDs: []string{"GPU-b850f46d-d5ea-c752-ddf3-c4453e44d3f7"}}
	got, err := json.MarshalIndent(tool.job(object), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	const file = "job.golden.json"
	if os.Getenv("NVSENTINEL_WRITE_PAGES") != "" {
		if err := os.WriteFile(file, append(got, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)+"\n"); diff != "" {
		t.Errorf("%s differs (NVSENTINEL_WRITE_PAGES=1 writes it):\n%s", file, diff)
	}
}
