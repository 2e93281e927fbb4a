package localcluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nvidia/nvsentinel/internal/localcluster"
)

// withNodes is the cluster with controllers that the tests of this package share.
var withNodes = localcluster.Options{Controllers: true, Nodes: 3}

func TestMain(m *testing.M) {
	if dir := os.Getenv(parentDir); dir != "" {
		beParent(dir)
	}
	os.Exit(localcluster.Main(m))
}

// eventually polls until check reports nothing amiss.
func eventually(t *testing.T, check func(context.Context) error) {
	t.Helper()
	var amiss error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 2*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			amiss = check(ctx)
			return amiss == nil, nil
		})
	if err != nil {
		t.Fatalf("%v: %v", err, amiss)
	}
}

func node(t *testing.T, c *localcluster.Cluster, name string) *corev1.Node {
	t.Helper()
	n, err := c.Client().CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestNodesAreUsable(t *testing.T) {
	c := localcluster.ForTest(t, withNodes)
	providers := map[string]bool{}
	for _, name := range []string{"gpu-0", "gpu-1", "gpu-2"} {
		n := node(t, c, name)
		if !localcluster.Ready(n) || len(n.Spec.Taints) != 0 {
			t.Errorf("%s: ready %t, taints %v", name, localcluster.Ready(n), n.Spec.Taints)
		}
		if gpus := n.Status.Allocatable[localcluster.GPUResource]; gpus.Value() != 8 {
			t.Errorf("%s: %s GPUs, want 8", name, gpus.String())
		}
		if n.Labels[localcluster.GPULabel] != "true" || n.Labels[corev1.LabelHostname] != name {
			t.Errorf("%s: labels %v", name, n.Labels)
		}
		if !strings.HasPrefix(n.Spec.ProviderID, "kwok://"+name+"-") || providers[n.Spec.ProviderID] {
			t.Errorf("%s: provider id %q", name, n.Spec.ProviderID)
		}
		providers[n.Spec.ProviderID] = true
	}
}

func TestWorkloadsRunAndAreEvicted(t *testing.T) {
	c := localcluster.ForTest(t, withNodes)
	ctx, namespace := t.Context(), c.Namespace(t)
	if _, err := c.AddDeployment(ctx, namespace, "train", 2, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AddDaemonSet(ctx, namespace, "agent"); err != nil {
		t.Fatal(err)
	}
	pods, err := c.WaitForPods(ctx, namespace, "train", 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.WaitForPods(ctx, namespace, "agent", 3); err != nil {
		t.Fatal(err)
	}
	if pods[0].Status.PodIP == "" || pods[0].Status.HostIP == "" {
		t.Errorf("addresses of a running pod: %q on %q", pods[0].Status.PodIP, pods[0].Status.HostIP)
	}

	if _, err := c.AddPDB(ctx, namespace, "train", 2); err != nil {
		t.Fatal(err)
	}
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pods[0].Name}}
	evict := func(ctx context.Context) error {
		return c.Client().CoreV1().Pods(namespace).EvictV1(ctx, eviction)
	}
	eventually(t, func(ctx context.Context) error {
		budget, err := c.Client().PolicyV1().PodDisruptionBudgets(namespace).Get(ctx, "train", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if budget.Status.CurrentHealthy != 2 {
			return errors.New("the budget has not counted the pods")
		}
		return nil
	})
	if err := evict(ctx); !apierrors.IsTooManyRequests(err) {
		t.Fatalf("eviction against the budget: %v, want too many requests", err)
	}
	if err := c.Client().PolicyV1().PodDisruptionBudgets(namespace).Delete(ctx, "train", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, evict)
	after, err := c.WaitForPods(ctx, namespace, "train", 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range after {
		if pod.UID == pods[0].UID {
			t.Errorf("pod %s is still there after its eviction", pod.Name)
		}
	}
}

func TestServiceAccountIsBoundByRBAC(t *testing.T) {
	c := localcluster.ForTest(t, withNodes)
	ctx, namespace := t.Context(), c.Namespace(t)
	path, err := c.ServiceAccountKubeconfig(ctx, namespace, "reader", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	list := func(ctx context.Context) error {
		_, err := reader.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err
	}
	if err := list(ctx); !apierrors.IsForbidden(err) {
		t.Fatalf("listing nodes before the binding: %v, want forbidden", err)
	}
	manifests := `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: ` + namespace + `}
rules:
- {apiGroups: [""], resources: [nodes], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: ` + namespace + `}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ` + namespace + `}
subjects:
- {kind: ServiceAccount, name: reader, namespace: ` + namespace + `}
`
	for range 2 { // the second time updates
		if err := c.Apply(ctx, strings.NewReader(manifests)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, list)
	if err := reader.CoreV1().Nodes().Delete(ctx, "gpu-0", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("deleting a node with a reader's token: %v, want forbidden", err)
	}
}

func TestPowerOffAndOn(t *testing.T) {
	c := localcluster.ForTest(t, withNodes)
	ctx := t.Context()
	if _, err := c.AddNode(ctx, localcluster.NodeSpec{Name: "rebooted", BootID: "boot-1", GPUs: -1}); err != nil {
		t.Fatal(err)
	}
	defer c.DeleteNode(context.WithoutCancel(ctx), "rebooted")
	if err := c.WaitForNodes(ctx, "rebooted"); err != nil {
		t.Fatal(err)
	}

	if err := c.SetPower(ctx, "rebooted", false); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		n := node(t, c, "rebooted")
		if ready := readyCondition(t, n); ready.Status != corev1.ConditionFalse || ready.Reason != "SimulatedPowerOff" {
			return fmt.Errorf("still %s for %s without power", ready.Status, ready.Reason)
		}
		for _, taint := range n.Spec.Taints {
			if taint.Key == corev1.TaintNodeNotReady && taint.Effect == corev1.TaintEffectNoExecute {
				return nil
			}
		}
		return errors.New("no not-ready taint")
	})
	boot := []byte(`{"status":{"nodeInfo":{"bootID":"boot-2"}}}`)
	_, err := c.Client().CoreV1().Nodes().Patch(ctx, "rebooted", types.StrategicMergePatchType, boot,
		metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetPower(ctx, "rebooted", true); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitForNodes(ctx, "rebooted"); err != nil {
		t.Fatal(err)
	}
	n := node(t, c, "rebooted")
	if got := n.Status.NodeInfo.BootID; got != "boot-2" {
		t.Errorf("boot id %q after the reboot, want boot-2", got)
	}
	if ready := readyCondition(t, n); ready.Reason != "KubeletReady" {
		t.Errorf("reason of Ready after the reboot: %s, want KubeletReady", ready.Reason)
	}
}

func readyCondition(t *testing.T, n *corev1.Node) corev1.NodeCondition {
	t.Helper()
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition
		}
	}
	t.Fatalf("node %s has no Ready condition", n.Name)
	return corev1.NodeCondition{}
}

// A fault that a monitor writes as a condition of its own stays beside those of kwok.
func TestForeignConditionsStay(t *testing.T) {
	c := localcluster.ForTest(t, withNodes)
	ctx := t.Context()
	if _, err := c.AddNode(ctx, localcluster.NodeSpec{Name: "faulty"}); err != nil {
		t.Fatal(err)
	}
	defer c.DeleteNode(context.WithoutCancel(ctx), "faulty")
	patch := []byte(`{"status":{"conditions":[{"type":"GpuXidError","status":"True","reason":"XID79"}]}}`)
	_, err := c.Client().CoreV1().Nodes().Patch(ctx, "faulty", types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	for _, on := range []bool{false, true} {
		if err := c.SetPower(ctx, "faulty", on); err != nil {
			t.Fatal(err)
		}
		eventually(t, func(context.Context) error {
			if localcluster.Ready(node(t, c, "faulty")) != on {
				return errors.New("readiness does not follow the power")
			}
			return nil
		})
	}
	for _, condition := range node(t, c, "faulty").Status.Conditions {
		if condition.Type == "GpuXidError" && condition.Status == corev1.ConditionTrue {
			return
		}
	}
	t.Error("the foreign condition is gone")
}

func TestTerminationAnnotationHoldsAPod(t *testing.T) {
	c := localcluster.ForTest(t, withNodes)
	ctx, namespace := t.Context(), c.Namespace(t)
	for name, termination := range map[string]string{"hangs": "never", "obeys": "100ms"} {
		_, err := c.AddPod(ctx, localcluster.PodSpec{
			Namespace: namespace, Name: name,
			Annotations: map[string]string{localcluster.TerminationAnnotation: termination},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.WaitForPods(ctx, namespace, name, 1); err != nil {
			t.Fatal(err)
		}
	}
	pods := c.Client().CoreV1().Pods(namespace)
	for _, name := range []string{"hangs", "obeys"} {
		if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func(ctx context.Context) error {
		if _, err := pods.Get(ctx, "obeys", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.New("the pod that obeys is still there")
		}
		return nil
	})
	hanging, err := pods.Get(ctx, "hangs", metav1.GetOptions{})
	if err != nil || hanging.DeletionTimestamp == nil {
		t.Fatalf("the pod that hangs: %v, deletion %v", err, hanging.DeletionTimestamp)
	}
	now := int64(0)
	if err := pods.Delete(ctx, "hangs", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
}

func TestApplyWaitsForADefinition(t *testing.T) {
	c := localcluster.ForTest(t, localcluster.Options{})
	err := c.Apply(t.Context(), strings.NewReader(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lamps.test.local}
spec:
  group: test.local
  scope: Namespaced
  names: {kind: Lamp, plural: lamps}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: test.local/v1
kind: Lamp
metadata: {name: desk}
`))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 { // a definition alone is served when Apply returns
		name := fmt.Sprintf("bulb%d", i)
		if err := c.Apply(t.Context(), strings.NewReader(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: `+name+`s.test.local}
spec:
  group: test.local
  scope: Namespaced
  names: {kind: `+name+`, plural: `+name+`s}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`)); err != nil {
			t.Fatal(err)
		}
		kind := schema.GroupVersionResource{Group: "test.local", Version: "v1", Resource: name + "s"}
		if _, err := c.Dynamic().Resource(kind).List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("the kind of a definition that was applied: %v", err)
		}
	}
	err = c.Apply(t.Context(), strings.NewReader(`
apiVersion: v1
kind: ConfigMap
metadata: {name: lost, namespace: nowhere}
`))
	if !apierrors.IsNotFound(err) {
		t.Errorf("applying into a missing namespace: %v, want not found", err)
	}
}

func TestAPIServerOutage(t *testing.T) {
	c := localcluster.ForTest(t, withNodes)
	ctx, namespace := t.Context(), c.Namespace(t)
	c.StopAPIServer()
	if _, err := c.Client().CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}); err == nil {
		t.Error("the API server answers although it is stopped")
	}
	if err := c.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AddDeployment(ctx, namespace, "after", 1, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := c.WaitForPods(ctx, namespace, "after", 1); err != nil {
		t.Fatal(err)
	}
	if err := c.Failure(); err != nil {
		t.Errorf("an outage on purpose broke the cluster: %v", err)
	}
}
