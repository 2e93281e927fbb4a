package reconciler

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// An API server that answers 429 for a while: nothing is made twice, nothing hangs, and
// the claims and remediations are there once it is through.
func TestAnOverloadedAPIServer(t *testing.T) { overload(t, 3*time.Second) }

func TestAMinuteOfOverload(t *testing.T) {
	testkit.Long(t, "TestAnOverloadedAPIServer")
	overload(t, time.Minute)
}

func overload(t *testing.T, lasts time.Duration) {
	t.Helper()
	w := newWorld(t, "overload")
	a, b := w.node("a"), w.node("b")
	ref := w.template(rebootKind, "")
	name := w.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &ref })
	var until atomic.Int64 // unix nanoseconds
	var refused atomic.Int64
	w.start(func(config *rest.Config, d *Deps) {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return transport(func(r *http.Request) (*http.Response, error) {
				if time.Now().UnixNano() < until.Load() && r.URL.Query().Get("watch") == "" {
					refused.Add(1)
					busy := answer(r, http.StatusTooManyRequests, "TooManyRequests")
					busy.Header.Set("Retry-After", "1")
					return busy, nil
				}
				return next.RoundTrip(r)
			})
		})
		claims, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		d.Claims.Client = claims
	}, nil)
	w.settle(name, "it works", phase(v1alpha1.PhaseEnabled))
	until.Store(time.Now().Add(lasts).UnixNano())
	w.fall(a)
	w.fall(b)
	testkit.Until(t, waitTimeout, func() bool { return refused.Load() > 0 })
	w.settle(name, "both are remediated", remediations(2))
	if early := until.Load() - time.Now().UnixNano(); early > 0 {
		t.Errorf("the status was written %s before the API server took anything", time.Duration(early))
	}
	if objects := w.objects(rebootKind); len(objects) != 2 {
		t.Errorf("%d remediations of two nodes", len(objects))
	}
	t.Logf("%s of 429: %d requests refused", lasts, refused.Load())
	w.heal(a)
	w.heal(b)
	w.settle(name, "both are released", func(s v1alpha1.NodeHealthCheckStatus) bool { return len(s.UnhealthyNodes) == 0 })
	testkit.Until(t, waitTimeout, func() bool {
		for _, node := range []string{a, b} {
			if w.live.Get(t.Context(), types.NamespacedName{Namespace: w.leases, Name: nodelease.Name(node)}, &coordinationv1.Lease{}) == nil {
				return false
			}
		}
		return true
	})
}
