// Package nodeclient is the API client of a program on a node: it reads Nodes, writes Events
// about them, and reviews tokens. It links the types of these alone. client-go's clientset,
// which package kube has, registers every API there is when a program starts: a quarter of the
// program's pages, and of its resident memory.
package nodeclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Client asks one API server. Its parts are also those of client-go's clientset.
type Client struct {
	Nodes Nodes
	// Events are those of the namespace default, in which Events about Nodes are.
	Events       Events
	TokenReviews TokenReviews
}

// Nodes is what is asked about Nodes.
type Nodes interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.Node, error)
	List(ctx context.Context, o metav1.ListOptions) (*corev1.NodeList, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, o metav1.PatchOptions, subresources ...string) (*corev1.Node, error)
}

// Events is what is asked about Events.
type Events interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.Event, error)
	Create(ctx context.Context, e *corev1.Event, o metav1.CreateOptions) (*corev1.Event, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, o metav1.PatchOptions, subresources ...string) (*corev1.Event, error)
}

// TokenReviews is what is asked about tokens.
type TokenReviews interface {
	Create(ctx context.Context, r *authenticationv1.TokenReview, o metav1.CreateOptions) (*authenticationv1.TokenReview, error)
}

// Connect makes a Client; it does not contact the API server yet.
func Connect(cfg Config, userAgent string) (*Client, error) {
	rc, err := cfg.rest()
	if err != nil {
		return nil, err
	}
	rc.UserAgent = userAgent
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), authenticationv1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("registering the API's types: %w", err)
	}
	line, err := rest.HTTPClientFor(rc)
	if err != nil {
		return nil, fmt.Errorf("creating the connection to the API server: %w", err)
	}
	core, err := group(rc, line, scheme, corev1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	authentication, err := group(rc, line, scheme, authenticationv1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	codec := runtime.NewParameterCodec(scheme)
	return &Client{
		Nodes: gentype.NewClientWithList("nodes", core, codec, "",
			func() *corev1.Node { return new(corev1.Node) }, func() *corev1.NodeList { return new(corev1.NodeList) }),
		Events: gentype.NewClient("events", core, codec, metav1.NamespaceDefault,
			func() *corev1.Event { return new(corev1.Event) }),
		TokenReviews: gentype.NewClient("tokenreviews", authentication, codec, "",
			func() *authenticationv1.TokenReview { return new(authenticationv1.TokenReview) }),
	}, nil
}

// Identity is the sighting of the machine that a Node object gives.
func Identity(node *corev1.Node) record.NodeIdentity {
	return record.NodeIdentity{
		UID: string(node.UID), ProviderID: node.Spec.ProviderID,
		SystemUUID: node.Status.NodeInfo.SystemUUID, BootID: node.Status.NodeInfo.BootID,
	}
}

// group is the client of one group of the API.
func group(rc *rest.Config, line *http.Client, scheme *runtime.Scheme, of schema.GroupVersion) (*rest.RESTClient, error) {
	rc = rest.CopyConfig(rc)
	rc.GroupVersion, rc.APIPath = &of, "/apis"
	if of.Group == corev1.GroupName {
		rc.APIPath = "/api"
	}
	rc.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientForConfigAndClient(rc, line)
	if err != nil {
		return nil, fmt.Errorf("creating the API client of %s: %w", of, err)
	}
	return client, nil
}

// Config describes how to reach the API server.
type Config struct {
	_ struct{} `block:"API server" usage:"Connection of a program to the Kubernetes API server"`

	// Kubeconfig is the path of a kubeconfig; empty means the pod's own account.
	Kubeconfig string `toml:"kubeconfig" flag:"kubeconfig" usage:"Path of a kubeconfig. Empty uses the service account of the Pod."`
	// QPS and Burst throttle the client; 0 means no throttle of our own: the
	// API server's priority and fairness is the limit.
	QPS   float64 `toml:"qps" bounds:"at least 0" flag:"kube-api-qps" usage:"Maximum number of API requests per second on the client side. 0 disables the limit."`
	Burst int     `toml:"burst" bounds:"at least 0" flag:"kube-api-burst" usage:"Maximum burst of API requests on the client side, for --kube-api-qps."`
}

// Validate checks the limits.
func (c Config) Validate() error {
	if c.QPS < 0 || c.Burst < 0 {
		return fmt.Errorf("kube.qps (--kube-api-qps) %v and kube.burst (--kube-api-burst) %d must not be negative", c.QPS, c.Burst)
	}
	return nil
}

// rest is c for Kubernetes' own types, which the API server sends as protobuf and
// uncompressed, as package kube has them.
func (c Config) rest() (rc *rest.Config, err error) {
	if c.Kubeconfig == "" {
		if rc, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("using the pod's service account, since no kubeconfig is given: %w", err)
		}
	} else if rc, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return nil, fmt.Errorf("reading kubeconfig %s: %w", c.Kubeconfig, err)
	}
	rc.ContentType = runtime.ContentTypeProtobuf
	rc.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	rc.DisableCompression = true
	rc.QPS = -1 // no throttle
	if c.QPS > 0 {
		rc.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(float32(c.QPS), max(c.Burst, 1))
	}
	return rc, nil
}
