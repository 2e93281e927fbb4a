// Package kube is how the services touch Kubernetes: clients without a
// client-side throttle, one patch per Node write that tests the facts it was
// decided on, and a Node cache that is a source.
package kube

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nvidia/nvsentinel/internal/nodeclient"
)

// Config says how to reach the API server.
type Config = nodeclient.Config

// Client holds the clients of one API server.
type Client struct {
	Config    *rest.Config
	Clientset kubernetes.Interface
	Dynamic   dynamic.Interface

	server *serverTime
}

// Connect makes the clients; it does not contact the API server yet.
func Connect(cfg Config, userAgent string) (*Client, error) {
	if cfg.Kubeconfig == "" {
		rc, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("using the pod's service account, since no kubeconfig is given: %w", err)
		}
		return ForConfig(rc, cfg, userAgent)
	}
	rc, err := clientcmd.BuildConfigFromFlags("", cfg.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig %s: %w", cfg.Kubeconfig, err)
	}
	return ForConfig(rc, cfg, userAgent)
}

// binary is rc for Kubernetes' own types, which the API server sends as
// protobuf: a Node takes a fraction of the time of JSON to encode and decode, on
// both sides of every read, answer and watch. Other types stay JSON.
func binary(rc *rest.Config) *rest.Config {
	rc = rest.CopyConfig(rc)
	rc.ContentType = runtime.ContentTypeProtobuf
	rc.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return rc
}

// ForConfig makes the clients from a rest.Config.
func ForConfig(rc *rest.Config, cfg Config, userAgent string) (*Client, error) {
	rc = rest.CopyConfig(rc)
	rc.UserAgent = userAgent
	rc.QPS, rc.Burst = -1, 0
	rc.DisableCompression = true // of every watch's events: it costs both sides more than the cluster's network
	if cfg.QPS > 0 {
		rc.QPS, rc.Burst = float32(cfg.QPS), max(cfg.Burst, 1)
	}
	server := &serverTime{}
	server.watch(rc)
	clientset, err := kubernetes.NewForConfig(binary(rc))
	if err != nil {
		return nil, fmt.Errorf("making the API client: %w", err)
	}
	dyn, err := dynamic.NewForConfig(rc)
	if err != nil {
		return nil, fmt.Errorf("making the dynamic API client: %w", err)
	}
	return &Client{Config: rc, Clientset: clientset, Dynamic: dyn, server: server}, nil
}
