package command_test

import (
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/cli/internal/command"
	"github.com/nvidia/nvsentinel/cli/timeline"
)

// TestTrace: what runs know is reported without a store; a cluster without the kind, and a
// thing that nobody knows, are no failures.
func TestTrace(t *testing.T) {
	w := newWorld(t)
	admin := w.viewer
	run(t, command.Program{}, "trace", "gpu-1", "--kubeconfig", admin).expect(t, command.ExitAbsent, "no repair chain run found for gpu-1", "")
	text, err := os.ReadFile("../../../distros/helm/nvsentinel/crds/nvsentinel.dgxc.nvidia.com_repairruns.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w.apply(t, string(text))
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"nodeName": "traced-1", "chain": "c", "fault": map[string]any{"record": "traced-record"}}}}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.RunKind))
	o.SetName("traced-run")
	if _, err := w.cluster.Dynamic().Resource(v1alpha1.GroupVersion.WithResource("repairruns")).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	run(t, command.Program{}, "trace", "traced-record", "--kubeconfig", admin).expect(t, command.ExitComplete, "run traced-run, chain c, node traced-1: under way", "")
	if tl := decode[timeline.Trace](t, run(t, command.Program{}, "trace", "traced-1", "--kubeconfig", admin, "-o", "json")); len(tl.Runs) != 1 || tl.Runs[0].Fault.Record != "traced-record" {
		t.Errorf("%+v", tl)
	}
	// status lists it by the same rights, although the kinds of chains are not there.
	run(t, command.Program{Store: w.dsn}, "status", "--kubeconfig", admin).expect(t, command.ExitComplete, "traced-run  traced-1  c", "")
	run(t, command.Program{}, "trace", "traced-1", "--kubeconfig", unreachable(t, admin)).expect(t, command.ExitFailed, "", "connection refused")
	run(t, command.Program{}, "trace").expect(t, command.ExitUsage, "", "arguments given: 0")
}
