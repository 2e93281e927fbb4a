package command_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/cli/internal/command"
)

// gateway makes a Ready pod of a gateway, as the chart labels it.
func (w *world) gateway(t *testing.T) {
	t.Helper()
	pods := w.cluster.Client().CoreV1().Pods("nvsentinel")
	pod, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "gateway-", Labels: map[string]string{"app.kubernetes.io/name": "platform-connectors-gateway"}},
		Spec:       corev1.PodSpec{NodeName: w.node.Name, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = pods.Delete(context.WithoutCancel(t.Context()), pod.Name, *metav1.NewDeleteOptions(0))
	})
	pod.Status.Phase, pod.Status.Conditions = corev1.PodRunning, []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if _, err := pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestTheWayToTheStore is looked for in the namespace, by the rights that the page asks
// for, up to the kubelet, which is not here; the rest is told nevertheless.
func TestTheWayToTheStore(t *testing.T) {
	w := newWorld(t)
	status := func(kubeconfig string, says ...string) {
		t.Helper()
		a := run(t, command.Program{}, "status", "--kubeconfig", kubeconfig)
		for _, want := range says {
			a.expect(t, command.ExitPartial, want, "")
		}
		a.expect(t, command.ExitPartial, w.node.Name+"  remediating", "")
	}
	status(w.viewer, "! store not read: ", "namespace nvsentinel has no gateway")
	w.apply(t, `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: nodes-without-pods}
rules: [{apiGroups: [""], resources: [nodes], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: pods-without-ports}
rules: [{apiGroups: [""], resources: [nodes, pods], verbs: [get, list]}]
`)
	blind, short := w.account(t, "nodes-without-pods", "nodes-without-pods"), w.account(t, "pods-without-ports", "pods-without-ports")
	w.gateway(t)
	status(blind, "right to list pods in namespace nvsentinel")
	status(short, "gateway gateway-", "right to create pods/portforward in namespace nvsentinel")
	a := run(t, command.Program{}, "status", "--kubeconfig", w.viewer)
	a.expect(t, command.ExitPartial, "! store not read: ", "")
	if !strings.Contains(a.out, "gateway gateway-") || strings.Contains(a.out, "needs the right") {
		t.Errorf("with the rights of the page it does not come to the kubelet:\n%s", a.out)
	}
	run(t, command.Program{}, "canary", w.node.Name, "--kubeconfig", w.viewer).expect(t, command.ExitFailed, "", "a canary needs the store and the API server: ")
	run(t, command.Program{}, "clear", w.node.Name, w.fault.ID, "--kubeconfig", w.viewer).expect(t, command.ExitFailed, "", "clearing needs the store and the API server: ")
	if id := w.asked(t); id != "" {
		t.Errorf("canary %s was asked for without a way to see it come", id)
	}
}
