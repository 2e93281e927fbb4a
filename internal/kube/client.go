// Package kube is the Kubernetes access of the services: clients without a client-side
// throttle, one patch per Node write that tests the facts it was decided on, and a Node cache
// that is a source.
package kube

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/nodeclient"
)

// Config describes how to reach the API server.
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
		return nil, fmt.Errorf("creating the API client: %w", err)
	}
	dyn, err := dynamic.NewForConfig(rc)
	if err != nil {
		return nil, fmt.Errorf("creating the dynamic API client: %w", err)
	}
	return &Client{Config: rc, Clientset: clientset, Dynamic: dyn, server: server}, nil
}

// truth is how far a machine's clock may be off the API server's time before
// that one is taken; the server's answers give it in whole seconds.
const truth = 2 * time.Second

// serverTime is the API server's time, by the Date of its answers and the time
// that has passed since, whatever the wall clock of this machine does.
type serverTime struct {
	mu      sync.Mutex
	date    time.Time // of the last answer
	arrived time.Time // with the monotonic clock's reading
}

// watch notes the Date of every answer that rc's clients get.
func (s *serverTime) watch(rc *rest.Config) {
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { return dated{next, s} })
}

type dated struct {
	next http.RoundTripper
	time *serverTime
}

// RoundTrip passes a request on and notes when its answer was given.
func (d dated) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := time.Now() //nolint:forbidigo // measures this machine's own clock
	answer, err := d.next.RoundTrip(r)
	if err == nil {
		d.time.note(answer.Header.Get("Date"), asked, time.Now()) //nolint:forbidigo // measures this machine's own clock
	}
	return answer, err
}

// note takes an answer's Date, unless the answer took so long that nobody knows
// when it was given, or the process stood still meanwhile.
func (s *serverTime) note(date string, asked, arrived time.Time) {
	at, err := http.ParseTime(date)
	if err != nil || arrived.Sub(asked) > truth {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.date, s.arrived = at.Add(time.Second/2), arrived // between the two seconds
}

// now is own, unless it is further off the server's time than that is known.
func (s *serverTime) now(own time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.date.IsZero() {
		return own
	}
	server := s.date.Add(time.Since(s.arrived)) //nolint:forbidigo // measures this machine's own clock
	if off := own.Sub(server); off > truth || off < -truth {
		return server
	}
	return own
}

// Clock is a clock of the whole cluster: own, held to the API server's time. What
// the control services record, and compare with each other's times and the API
// server's (a pod's end, an object's creation), is then of one clock: one
// machine's wrong clock neither cuts a wait short nor draws it out. Timers and
// tickers are own's.
func (c *Client) Clock(own clock.WithTicker) clock.WithTicker {
	return clusterClock{WithTicker: own, server: c.server}
}

type clusterClock struct {
	clock.WithTicker
	server *serverTime
}

// Now is the time of the API server, or own as long as that has not answered.
func (c clusterClock) Now() time.Time { return c.server.now(c.WithTicker.Now()) }

// Since is the time that has passed since t.
func (c clusterClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// pageOf bounds one answer of the API server.
const pageOf = 500

// Each lists objects page by page and visits each of them.
func Each[L runtime.Object, T any](
	ctx context.Context, selector string, list func(context.Context, metav1.ListOptions) (L, error), visit func(*T),
) error {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) })
	pages.PageSize = pageOf
	return pages.EachListItem(ctx, metav1.ListOptions{LabelSelector: selector}, func(x runtime.Object) error {
		one, ok := any(x).(*T)
		if !ok {
			return fmt.Errorf("listing objects: unexpected type %T", x)
		}
		visit(one)
		return nil
	})
}
