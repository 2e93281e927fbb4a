package reconciler

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// refusing fails the first requests, as an API server that is away does.
type refusing struct {
	next http.RoundTripper
	left *atomic.Int32
}

func (r refusing) RoundTrip(request *http.Request) (*http.Response, error) {
	if r.left.Add(-1) >= 0 {
		return nil, errors.New("connection refused by the test")
	}
	return r.next.RoundTrip(request)
}

// TestTheWatchWaitsForAnAPIServerThatGoesAwayAtItsStart: the objects were read
// once, and what the watch asks next fails.
func TestTheWatchWaitsForAnAPIServerThatGoesAwayAtItsStart(t *testing.T) {
	w := newWorld(t)
	var left atomic.Int32
	left.Store(2)
	config := rest.CopyConfig(w.cluster.RESTConfig())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return refusing{next, &left} })
	watch := NewWatch(config, 1, clock.RealClock{}, w.janitor.Log, w.janitor)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- watch.Run(ctx) }()
	var seen []string
	err := wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		ok, why := watch.Synced()
		if len(seen) == 0 || seen[len(seen)-1] != why {
			seen = append(seen, why)
		}
		return ok && strings.Contains(strings.Join(seen, "; "), "refused by the test"), nil
	})
	if err != nil || left.Load() > 0 {
		t.Errorf("%v, %d requests not failed, the watch said %q", err, left.Load(), seen)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the watch ended with %v", err)
	}
}

// blockingTransport lets no list or watch of Nodes through before let is closed.
type blockingTransport struct {
	next http.RoundTripper
	let  <-chan struct{}
}

func (b blockingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Path == "/api/v1/nodes" {
		select {
		case <-b.let:
		case <-request.Context().Done():
			return nil, request.Context().Err()
		}
	}
	return b.next.RoundTrip(request)
}

// TestTheWatchIsNotReadyBeforeItHasTheNodes: the controllers open their informers some
// time after the caches have started.
func TestTheWatchIsNotReadyBeforeItHasTheNodes(t *testing.T) {
	w := newWorld(t)
	let := make(chan struct{})
	config := rest.CopyConfig(w.cluster.RESTConfig())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return blockingTransport{next, let} })
	watch := NewWatch(config, 1, clock.RealClock{}, w.janitor.Log, w.janitor)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- watch.Run(ctx) }()
	expectReady := func(want bool, within time.Duration) error {
		return wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, within, true, func(context.Context) (bool, error) {
			ok, _ := watch.Synced()
			return ok == want, nil
		})
	}
	if err := expectReady(false, 2*time.Minute); err != nil {
		t.Fatalf("it did not begin: %v", err)
	}
	if expectReady(true, 2*time.Second) == nil {
		t.Error("it is synced, and has no Node")
	}
	close(let)
	if err := expectReady(true, 2*time.Minute); err != nil {
		t.Errorf("it is not synced though it has the Nodes: %v", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the watch ended with %v", err)
	}
}

// forbidding answers watches of Nodes with 403, as an API server does without the right to
// watch beside that to list.
type forbidding struct{ next http.RoundTripper }

func (f forbidding) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Path != "/api/v1/nodes" || !request.URL.Query().Has("watch") {
		return f.next.RoundTrip(request)
	}
	const body = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`
	return &http.Response{
		StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: request,
	}, nil
}

// TestARefusedWatchIsNotReady: an informer counts as synced after its list, and would see
// no change of a Node before it lists again.
func TestARefusedWatchIsNotReady(t *testing.T) {
	w := newWorld(t)
	config := rest.CopyConfig(w.cluster.RESTConfig())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return forbidding{next} })
	watch := NewWatch(config, 1, clock.RealClock{}, w.janitor.Log, w.janitor)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- watch.Run(ctx) }()
	why := ""
	err := wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		var ok bool
		ok, why = watch.Synced()
		return !ok && strings.Contains(why, "Node cannot be watched"), nil
	})
	if err != nil {
		t.Errorf("%v; the watch says %q", err, why)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the watch ended with %v", err)
	}
}
