package access

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// patchPod is a write of an account to a pod of the namespace default.
func patchPod(t *testing.T, by kubernetes.Interface, pod string, patch any, o metav1.PatchOptions, sub ...string) error {
	t.Helper()
	body, err := json.Marshal(patch)
	if err != nil {
		t.Fatal(err)
	}
	_, err = by.CoreV1().Pods("default").Patch(t.Context(), pod, types.MergePatchType, body, o, sub...)
	return err
}

// TestDevicesOfPods: with the token stored on a node, root on that node can write which GPUs the
// node's pods hold, and nothing else.
func TestDevicesOfPods(t *testing.T) {
	w := newWorld(t)
	own, victim := w.plain(t, "own"), w.plain(t, "victim")
	for _, n := range []*corev1.Node{own, victim} {
		pod := localcluster.PodSpec{Namespace: "default", Name: "train-" + n.Name, Node: n.Name}
		if _, err := w.cluster.AddPod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	mine, theirs := "train-"+own.Name, "train-"+victim.Name
	devices := annotations(nodemark.DevicesAnnotation, `{"devices":{"nvidia.com/gpu":["GPU-a"]}}`)
	collector := w.onNode(t, "metadata-collector", own.Name)
	testkit.Until(t, 2*time.Minute, func() bool { // a new policy takes effect a little later
		return refused(patchPod(t, collector, theirs, devices, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}))
	})
	_, ofANode := collector.CoreV1().Nodes().Get(t.Context(), own.Name, metav1.GetOptions{})
	for what, err := range map[string]error{
		"a pod of another node":     patchPod(t, collector, theirs, devices, metav1.PatchOptions{}),
		"a token without a node":    patchPod(t, w.account(t, "metadata-collector"), mine, devices, metav1.PatchOptions{}),
		"another annotation":        patchPod(t, collector, mine, annotations("example.com/owner", "x"), metav1.PatchOptions{}),
		"all annotations":           patchPod(t, collector, mine, metadata("annotations", map[string]any{nodemark.DevicesAnnotation: "x", "a": "b"}), metav1.PatchOptions{}),
		"a label":                   patchPod(t, collector, mine, labels("app", "x"), metav1.PatchOptions{}),
		"an owner that is gone":     patchPod(t, collector, mine, metadata("ownerReferences", []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "none"}}), metav1.PatchOptions{}),
		"a finalizer":               patchPod(t, collector, mine, metadata("finalizers", []any{"example.com/for-ever"}), metav1.PatchOptions{}),
		"another image":             patchPod(t, collector, mine, spec("containers", []any{map[string]any{"name": "main", "image": "evil"}}), metav1.PatchOptions{}),
		"a deadline":                patchPod(t, collector, mine, spec("activeDeadlineSeconds", 1), metav1.PatchOptions{}),
		"its status":                patchPod(t, collector, mine, status("phase", "Failed"), metav1.PatchOptions{}, "status"),
		"its end":                   collector.CoreV1().Pods("default").Delete(t.Context(), mine, metav1.DeleteOptions{}),
		"by a monitor of the node":  patchPod(t, w.onNode(t, "nic-health-monitor", own.Name), mine, devices, metav1.PatchOptions{}),
		"the node that it lies on":  ofANode,
		"what the drainer may read": patchPod(t, w.account(t, "node-drainer"), mine, devices, metav1.PatchOptions{}),
	} {
		if !refused(err) {
			t.Errorf("%s: %v, want it refused", what, err)
		}
	}
	for _, patch := range []any{devices, annotations(nodemark.DevicesAnnotation, nil)} {
		if err := patchPod(t, collector, mine, patch, metav1.PatchOptions{}); err != nil {
			t.Errorf("%v of its own node's pod: %v, want it written", patch, err)
		}
	}
}
