package nodeclient

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"
)

// Config says how to reach the API server.
type Config struct {
	_ struct{} `block:"API server" usage:"How a program reaches the API server of Kubernetes"`

	// Kubeconfig is the path of a kubeconfig; empty means the pod's own account.
	Kubeconfig string `toml:"kubeconfig" flag:"kubeconfig" usage:"path of a kubeconfig; empty means the pod's service account"`
	// QPS and Burst throttle the client; 0 means no throttle of our own: the
	// API server's priority and fairness is the limit.
	QPS   float64 `toml:"qps" bounds:"at least 0" flag:"kube-api-qps" usage:"client-side limit of API requests per second; 0 means none"`
	Burst int     `toml:"burst" bounds:"at least 0" flag:"kube-api-burst" usage:"burst of the client-side limit"`
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
