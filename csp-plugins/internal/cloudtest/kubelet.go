package cloudtest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nvidia/nvsentinel/internal/localcluster"
)

// Kubelet is a client with the rights of a Node's kubelet, no more.
func Kubelet(t *testing.T, cluster *localcluster.Cluster, node string) kubernetes.Interface {
	t.Helper()
	path, err := cluster.UserKubeconfig("kubelet-"+node, "system:node:"+node, "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Register registers a Node by its own kubelet, which writes about itself what it likes.
func Register(t *testing.T, cluster *localcluster.Cluster, node, providerID string, status corev1.NodeStatus) {
	t.Helper()
	nodes := Kubelet(t, cluster, node).CoreV1().Nodes()
	made, err := nodes.Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: corev1.NodeSpec{ProviderID: providerID},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("registering node %s by its kubelet: %v", node, err)
	}
	made.Status = status
	if _, err := nodes.UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("writing the status of node %s by its kubelet: %v", node, err)
	}
}
