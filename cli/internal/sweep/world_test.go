package sweep_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/cli/removal"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

// world is a real API server, with what the suite leaves in a namespace of its own.
type world struct {
	cluster   *localcluster.Cluster
	namespace string
}

// newWorld has marks of every kind, and beside them what looks like one and is not.
func newWorld(t *testing.T) world {
	t.Helper()
	w := world{cluster: localcluster.ForTest(t, localcluster.Options{})}
	w.namespace = w.cluster.Namespace(t)
	for _, pattern := range []string{"crds/*.yaml", "manifests/crds/*.yaml"} {
		files, err := filepath.Glob("../../../distros/helm/nvsentinel/" + pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no definitions: %v", err)
		}
		for _, path := range files {
			w.apply(t, path)
		}
	}
	w.nodes(t)
	w.apply(t, "testdata/left.yaml")
	reboots := w.cluster.Dynamic().Resource(reboots)
	for _, name := range []string{"ended", "ended-but-held"} {
		x, err := reboots.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		x.Object["status"] = map[string]any{"completionTime": "2026-01-01T00:00:00Z"}
		if _, err := reboots.UpdateStatus(t.Context(), x, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// A person wanted it gone when nobody was there any more to take off its finalizer.
	if err := w.cluster.Dynamic().Resource(terminations).Delete(t.Context(), "asked-to-go", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, name := range []string{"train", "other"} { // nobody cleans up a namespace here
			_ = w.cluster.Client().CoreV1().Pods(w.namespace).Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		}
		letGo := []byte(`{"metadata":{"finalizers":null}}`)
		_, _ = w.cluster.Dynamic().Resource(terminations).Patch(context.WithoutCancel(t.Context()), "asked-to-go", types.MergePatchType, letGo, metav1.PatchOptions{})
	})
	return w
}

var (
	reboots      = schema.GroupVersionResource{Group: "janitor.dgxc.nvidia.com", Version: "v1alpha1", Resource: "rebootnodes"}
	terminations = reboots.GroupVersion().WithResource("terminatenodes")
)

func (w world) apply(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.Apply(t.Context(), strings.NewReader(strings.ReplaceAll(string(text), "NAMESPACE", w.namespace))); err != nil {
		t.Fatal(err)
	}
}

// nodes are: one of others alone; one with labels and conditions; one with a condition; one in quarantine,
// which others had cordoned and tainted before; one that is ours alone, and GPU services
// are off it.
func (w world) nodes(t *testing.T) {
	t.Helper()
	taint := corev1.Taint{Key: "gpu", Value: "xid", Effect: corev1.TaintEffectNoSchedule}
	session := marks.Desired{
		Session: "s", RuleSets: []string{"fatal"}, Faults: []record.Event{{ID: "s"}},
		Effects: record.Effects{Cordon: true, Taints: []record.Taint{nodemark.TaintOf(taint)}, Labels: []record.Label{{Key: "example.com/faulty", Value: "gpu"}}},
	}
	quarantine := func(n *corev1.Node) {
		marks.Mutator{LabelPrefix: nodemark.DefaultLabelPrefix}.Apply(n, session, time.Now())
	}
	w.node(t, "theirs", func(n *corev1.Node) {
		n.Spec.Unschedulable, n.Spec.Taints = true, []corev1.Taint{taint}
		n.Labels["k8saas.nvidia.com/cordon-by"], n.Labels["nvidia.com/gpu.deploy.dcgm"] = "ann", "true"
	}, corev1.NodeCondition{Type: "KernelDeadlock", Status: "False", Reason: "KernelHasNoDeadlock"})
	w.node(t, "labelled", func(n *corev1.Node) {
		n.Labels[nodemark.DCGMVersionLabel], n.Labels[nodemark.CountLabelsOf("gpu").Current], n.Labels[nodemark.ManagedLabel] = "4.x", "8", "false"
		nodemark.Annotate(n, nodemark.ReleasedAnnotation, "f1")
	}, corev1.NodeCondition{Type: "Xid", Status: "False", Reason: "XidIsHealthy", Message: record.HealthyMessage},
		corev1.NodeCondition{Type: "Theirs", Status: "True", Reason: "TheirsIsNotHealthy", Message: "of another tool"},
		corev1.NodeCondition{Type: "Nic", Status: "True", Reason: "NicIsNotHealthy", Message: "down Recommended Action=NONE;"})
	w.node(t, "told", func(*corev1.Node) {}, corev1.NodeCondition{Type: "Xid", Status: "False", Reason: "XidIsHealthy", Message: record.HealthyMessage})
	w.node(t, "sick", func(n *corev1.Node) {
		n.Spec.Unschedulable, n.Spec.Taints = true, []corev1.Taint{taint}
		quarantine(n)
	}, corev1.NodeCondition{Type: "Xid", Status: "True", Reason: "XidIsNotHealthy", Message: "Recommended Action=RESTART_VM;"})
	w.node(t, "alone", func(n *corev1.Node) {
		quarantine(n)
		nodemark.SetClaim(n, "claimed")
		nodemark.SetReset(n, "off")
		nodemark.SetRepeatOffender(n, nodemark.RepeatOffenderMark{Label: true, Note: "{}"})
	})
}

func (w world) node(t *testing.T, name string, mutate func(*corev1.Node), conditions ...corev1.NodeCondition) {
	t.Helper()
	node, err := w.cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.cluster.Client().CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
	})
	if node, err = kube.PatchNode(t.Context(), w.cluster.Client(), node, mutate); err != nil {
		t.Fatal(err)
	}
	node.Status.Conditions = append(node.Status.Conditions, conditions...)
	if _, err := w.cluster.Client().CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// inventory is everything in the cluster by the words of an item, mark by mark where an
// item can be a part of an object, with what it was apart from that.
func (w world) inventory(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, kind := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "nodes"}, {Version: "v1", Resource: "pods"}, {Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "events"},
		{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}, removal.Definitions, reboots,
		terminations, reboots.GroupVersion().WithResource("rebootnodetemplates"),
	} {
		list, err := w.cluster.Dynamic().Resource(kind).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			continue // the kind is gone
		}
		for _, x := range list.Items {
			if strings.HasPrefix(x.GetNamespace(), "kube-") || x.GetNamespace() != w.namespace && strings.HasPrefix(x.GetNamespace(), "test-") {
				continue
			}
			enter(out, x)
		}
	}
	return out
}

// enter writes an object into an inventory.
func enter(out map[string]string, x unstructured.Unstructured) {
	at := x.GetName()
	if ns := x.GetNamespace(); ns != "" {
		at = ns + "/" + at
	}
	whole := x.GetKind() + " " + at
	if x.GetKind() == "Node" || x.GetKind() == "Pod" {
		for key, value := range x.GetAnnotations() {
			out[x.GetKind()+" annotation "+at+" "+key] = value
		}
		for key, value := range x.GetLabels() {
			out[x.GetKind()+" label "+at+" "+key+"="+value] = ""
		}
		x.SetAnnotations(nil)
		x.SetLabels(nil)
	}
	spec, _, _ := unstructured.NestedMap(x.Object, "spec")
	status, _, _ := unstructured.NestedMap(x.Object, "status")
	if x.GetKind() == "Node" {
		if spec["unschedulable"] == true {
			out["Node cordon "+at+" unschedulable"] = ""
		}
		taints, _ := spec["taints"].([]any)
		for _, v := range taints {
			m := v.(map[string]any)
			out[fmt.Sprintf("Node taint %s %v=%v:%v", at, m["key"], m["value"], m["effect"])] = ""
		}
		conditions, _ := status["conditions"].([]any)
		for _, v := range conditions {
			m := v.(map[string]any)
			out[fmt.Sprintf("Node condition %s %v=%v", at, m["type"], m["status"])] = fmt.Sprint(v)
		}
		delete(spec, "unschedulable")
		delete(spec, "taints")
		delete(status, "conditions")
	}
	out[whole] = fmt.Sprint(x.GetUID(), x.GetFinalizers(), x.GetLabels(), x.GetAnnotations(), spec, status, x.Object["data"])
}

// settled waits until no definition is being removed any more.
func (w world) settled(t *testing.T) {
	t.Helper()
	testkit.Until(t, 2*time.Minute, func() bool {
		list, err := w.cluster.Dynamic().Resource(removal.Definitions).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range list.Items {
			if x.GetDeletionTimestamp() != nil {
				return false
			}
		}
		return true
	})
}
