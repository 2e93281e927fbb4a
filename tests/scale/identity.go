package scale

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The audiences that the chart projects tokens for.
const (
	gatewayAudience   = "gateway.nvsentinel.nvidia.com"
	connectorAudience = "platform-connector.nvsentinel.nvidia.com"
)

// podOf makes a pod of an account on a node, to which tokens can be bound.
func (s *site) podOf(ctx context.Context, account, node string) (*corev1.Pod, error) {
	pod, err := s.client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: account + "-"},
		Spec:       corev1.PodSpec{ServiceAccountName: account, NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "simulated"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("making a pod of %s: %w", account, err)
	}
	return pod, nil
}

// token is what a kubelet projects into a pod for an audience.
func (s *site) token(ctx context.Context, pod *corev1.Pod, audience string) (string, error) {
	lifetime := int64(tokenLifetime.Seconds())
	answer, err := s.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			Audiences: []string{audience}, ExpirationSeconds: &lifetime,
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("requesting a token of %s: %w", pod.Spec.ServiceAccountName, err)
	}
	return answer.Status.Token, nil
}

// tokenFile is the path of a file with such a token.
func (s *site) tokenFile(ctx context.Context, pod *corev1.Pod, audience string) (string, error) {
	token, err := s.token(ctx, pod, audience)
	if err != nil {
		return "", err
	}
	return s.file(pod.Name+".token", token)
}
