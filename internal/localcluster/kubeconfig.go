package localcluster

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// AdminKubeconfig is the path of a kubeconfig that may do everything.
func (c *Cluster) AdminKubeconfig() string { return c.id.kubeconfig["admin"] }

// RESTConfig is the administrator's client configuration, without a client-side rate limit.
// Each call returns a copy.
func (c *Cluster) RESTConfig() *rest.Config {
	return &rest.Config{
		Host: c.id.apiURL(),
		QPS:  -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: c.id.ca.caPEM, CertData: c.id.admin.cert, KeyData: c.id.admin.key,
		},
	}
}

// ServiceAccountKubeconfig writes a kubeconfig that acts as a service account with a token of the
// given life (Kubernetes requires at least 10 minutes) and returns its path. The namespace and the
// account are made when missing; what the account may do is up to RBAC.
func (c *Cluster) ServiceAccountKubeconfig(
	ctx context.Context, namespace, name string, lifetime time.Duration,
) (string, error) {
	if err := c.ensureNamespace(ctx, namespace); err != nil {
		return "", err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	_, err := c.client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("creating service account %s/%s: %w", namespace, name, err)
	}
	path := filepath.Join(c.dir, "serviceaccount-"+namespace+"-"+name+".kubeconfig")
	user, err := c.token(ctx, namespace, name, lifetime, nil)
	if err != nil {
		return "", err
	}
	return path, writeKubeconfig(path, c.id.apiURL(), c.id.ca.caPEM, user)
}

// UserKubeconfig writes a kubeconfig that acts as a user in groups, by a certificate, and returns its
// path; file begins the names of its files.
func (c *Cluster) UserKubeconfig(file, user string, groups ...string) (string, error) {
	pair, err := c.id.ca.client(file, user, groups...)
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.dir, file+".kubeconfig")
	return path, writeKubeconfig(path, c.id.apiURL(), c.id.ca.caPEM, &clientcmdapi.AuthInfo{ClientCertificateData: pair.cert, ClientKeyData: pair.key})
}

// Certificate is a server's certificate and key, and the authority that it is by, as PEM.
type Certificate struct{ Cert, Key, Authority []byte }

// Certificate issues one by the cluster's authority for names or addresses, the first of which
// names its files.
func (c *Cluster) Certificate(names ...string) (Certificate, error) {
	pair, err := c.id.ca.server(names[0], names...)
	return Certificate{Cert: pair.cert, Key: pair.key, Authority: c.id.ca.caPEM}, err
}

// PodKubeconfig writes a kubeconfig that acts as a pod's service account with a token bound to the
// pod, as its kubelet projects it: the API server puts the pod and its node into it.
func (c *Cluster) PodKubeconfig(ctx context.Context, pod *corev1.Pod, lifetime time.Duration) (string, error) {
	bound := &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	user, err := c.token(ctx, pod.Namespace, pod.Spec.ServiceAccountName, lifetime, bound)
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.dir, "pod-"+string(pod.UID)+".kubeconfig")
	return path, writeKubeconfig(path, c.id.apiURL(), c.id.ca.caPEM, user)
}

// PodToken is a token of a pod's service account for an audience, bound to the pod, as a
// kubelet projects it.
func (c *Cluster) PodToken(ctx context.Context, pod *corev1.Pod, audience string, lifetime time.Duration) (string, error) {
	bound := &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	user, err := c.token(ctx, pod.Namespace, pod.Spec.ServiceAccountName, lifetime, bound, audience)
	if err != nil {
		return "", err
	}
	return user.Token, nil
}

// token requests a token of a service account, for the API server or for audiences; bound
// is the object it ends with, or nil.
func (c *Cluster) token(
	ctx context.Context, namespace, account string, lifetime time.Duration, bound *authenticationv1.BoundObjectReference, audiences ...string,
) (*clientcmdapi.AuthInfo, error) {
	seconds := int64(lifetime / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds, BoundObjectRef: bound, Audiences: audiences}}
	token, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("requesting a token of service account %s/%s: %w", namespace, account, err)
	}
	return &clientcmdapi.AuthInfo{Token: token.Status.Token}, nil
}

// ensureNamespace creates a namespace unless it exists. A new one is ready for pods: with
// controllers, its service account is waited for, whose maker may be far behind after the API
// server was away.
func (c *Cluster) ensureNamespace(ctx context.Context, name string) error {
	_, err := c.client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case err != nil:
		return fmt.Errorf("creating namespace %s: %w", name, err)
	}
	return c.waitForPodsAllowed(ctx, name)
}

// writeKubeconfig writes a kubeconfig with one cluster, one user and one context.
func writeKubeconfig(path, server string, ca []byte, user *clientcmdapi.AuthInfo) error {
	const name = "local"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos[name] = user
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("writing kubeconfig %s: %w", filepath.Base(path), err)
	}
	return nil
}
