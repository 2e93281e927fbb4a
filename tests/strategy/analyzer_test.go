package strategy

import (
	"context"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/internal/localcluster"
)

// publishers lets the analyzer publish events about all nodes, as its page states: the ids of
// what it derives are not random.
const publishers = `
[[publishers.agent]]
name = "health-events-analyzer"
account = "system:serviceaccount:nvsentinel:health-events-analyzer"
clusterWide = true
`

// token is a file with the token that a pod of an account gets on the node.
func (w *world) token(ctx context.Context, account string) (file string, err error) {
	const namespace = "nvsentinel"
	pod, err := w.fleet.Cluster.AddPod(ctx, localcluster.PodSpec{Namespace: namespace, Name: account, Node: node, ServiceAccount: account})
	if err != nil {
		return "", err
	}
	token, err := w.fleet.Cluster.Client().CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			Audiences:      []string{"platform-connector.nvsentinel.nvidia.com"},
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	file = filepath.Join(w.fleet.Dir, account+".token")
	return file, os.WriteFile(file, []byte(token.Status.Token), 0o600)
}
