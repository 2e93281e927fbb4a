package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/gateway"
)

// tokenLifetimeSeconds is longer than any run, in seconds.
const tokenLifetimeSeconds = 24 * 60 * 60

// registrar gives connectors the pods and tokens that kubelets would.
type registrar struct {
	settings
	client kubernetes.Interface
	// cluster is how the API server is reached, without an account.
	cluster *clientcmdapi.Cluster
}

func newRegistrar(s settings) (*registrar, error) {
	cluster, err := kube.Connect(kube.Config{Kubeconfig: s.kubeconfig}, "fleet")
	if err != nil {
		return nil, err
	}
	return &registrar{settings: s, client: cluster.Clientset, cluster: &clientcmdapi.Cluster{
		Server: cluster.Config.Host, CertificateAuthority: cluster.Config.CAFile, CertificateAuthorityData: cluster.Config.CAData,
		TLSServerName: cluster.Config.ServerName,
	}}, nil
}

// identify makes the pod of a node's connector, unless it is there, and writes a
// kubeconfig and a token for gateways with tokens that are bound to it.
func (r *registrar) identify(ctx context.Context, node string) error {
	pod, err := r.pod(ctx, node)
	if err != nil {
		return err
	}
	token, err := r.token(ctx, pod)
	if err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["local"] = r.cluster
	config.AuthInfos["local"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["local"] = &clientcmdapi.Context{Cluster: "local", AuthInfo: "local"}
	config.CurrentContext = "local"
	if err := clientcmd.WriteToFile(*config, filepath.Join(r.folder(node), "kubeconfig")); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	if r.gateway.Address == "" {
		return nil
	}
	if token, err = r.token(ctx, pod, gateway.Audience); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.folder(node), "gateway.token"), []byte(token), 0o600)
}

// pod is one as the DaemonSet of the connectors would have on the node.
func (r *registrar) pod(ctx context.Context, node string) (*corev1.Pod, error) {
	pods := r.client.CoreV1().Pods(r.namespace)
	no := false
	pod, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "fleet-" + node, Namespace: r.namespace, Labels: map[string]string{"app": "fleet"}},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: r.account, AutomountServiceAccountToken: &no,
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:  []corev1.Container{{Name: "connector", Image: "fleet"}},
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		pod, err = pods.Get(ctx, "fleet-"+node, metav1.GetOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("creating its pod: %w", err)
	}
	return pod, nil
}

// token is one of the pod's account, bound to the pod.
func (r *registrar) token(ctx context.Context, pod *corev1.Pod, audiences ...string) (string, error) {
	lifetime := int64(tokenLifetimeSeconds)
	got, err := r.client.CoreV1().ServiceAccounts(r.namespace).CreateToken(ctx, r.account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			Audiences: audiences, ExpirationSeconds: &lifetime,
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("requesting a token: %w", err)
	}
	return got.Status.Token, nil
}
