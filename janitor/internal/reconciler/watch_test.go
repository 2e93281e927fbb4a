package reconciler

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
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
	watch := NewWatch(config, 1, w.janitor.Log, w.janitor)
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
