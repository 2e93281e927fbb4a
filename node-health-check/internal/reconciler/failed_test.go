package reconciler

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// failing waits until the check reports an action that fails, and why: in its reason, in
// the message of its condition, of its node, and in an Event.
func (w *world) failing(name, why string) v1alpha1.NodeHealthCheckStatus {
	w.t.Helper()
	s := w.settle(name, "the failure is reported", func(s v1alpha1.NodeHealthCheckStatus) bool {
		return strings.Contains(s.Reason, "starting a remediation failed for 1 nodes") && strings.Contains(s.Reason, why)
	})
	if c := s.Conditions[0]; c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, why) {
		w.t.Errorf("condition %+v", c)
	}
	if u := s.UnhealthyNodes[0]; !strings.Contains(u.Waiting, why) {
		w.t.Errorf("node %+v", u)
	}
	testkit.Until(w.t, waitTimeout, func() bool {
		for _, e := range w.eventsOf(name) {
			if e.Type == corev1.EventTypeWarning && e.Reason == "RemediationActionFailed" && strings.Contains(e.Message, why) {
				return true
			}
		}
		return false
	})
	return s
}

// The API server is busy, or a lease is denied: it is reported, until it is fixed.
func TestAFailedActionIsReported(t *testing.T) {
	refused := func(path string, code int, reason string) func(*rest.Config, *atomic.Bool) {
		return func(config *rest.Config, on *atomic.Bool) {
			config.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return transport(func(r *http.Request) (*http.Response, error) {
					if on.Load() && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, path) {
						return answer(r, code, reason), nil
					}
					return next.RoundTrip(r)
				})
			})
		}
	}
	for name, tt := range map[string]struct {
		refuse func(*rest.Config, *atomic.Bool)
		why    string
	}{
		"busy":   {refused("/rebootnodes", http.StatusInternalServerError, "InternalError"), "creating RebootNode"},
		"denied": {refused("/leases", http.StatusForbidden, "Forbidden"), "taking the lease of node"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "failed-"+name)
			a := w.node("a")
			ref := w.template(rebootKind, "")
			w.fall(a)
			check := w.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &ref })
			var on atomic.Bool
			on.Store(true)
			w.start(func(config *rest.Config, d *Deps) {
				tt.refuse(config, &on)
				client, err := kubernetes.NewForConfig(config)
				if err != nil {
					t.Fatal(err)
				}
				d.Claims.Client = client
			}, nil)
			w.failing(check, tt.why)
			on.Store(false)
			s := w.settle(check, "it is mended", remediations(1))
			if strings.Contains(s.Reason, "failed") || strings.Contains(s.Conditions[0].Message, "failed") || s.UnhealthyNodes[0].Waiting != "" {
				t.Errorf("status %+v", s)
			}
		})
	}
}

// The namespace of the leases is really not there, and then it is.
func TestANamespaceOfLeasesThatIsMissing(t *testing.T) {
	w := newWorld(t, "no-namespace")
	a := w.node("a")
	ref := w.template(rebootKind, "")
	w.fall(a)
	name := w.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &ref })
	w.leases = "nhc-leases-later"
	w.start(nil, nil)
	w.failing(name, `namespaces "nhc-leases-later" not found`)
	_, err := w.cluster.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.leases}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	w.settle(name, "the node is remediated", remediations(1))
}

// What keeps a pass from deciding anything is reported too.
func TestAPassThatDecidesNothing(t *testing.T) {
	w := newWorld(t, "undecided")
	w.node("a")
	ref := w.template(rebootKind, "")
	name := w.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &ref })
	var on atomic.Bool
	on.Store(true)
	w.start(func(config *rest.Config, _ *Deps) {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return transport(func(r *http.Request) (*http.Response, error) {
				if on.Load() && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/rebootnodetemplates") {
					return answer(r, http.StatusInternalServerError, "InternalError"), nil
				}
				return next.RoundTrip(r)
			})
		})
	}, nil)
	w.settle(name, "it is reported", func(s v1alpha1.NodeHealthCheckStatus) bool {
		return strings.HasPrefix(s.Reason, "The last evaluation") && strings.Contains(s.Reason, "played by the test")
	})
	testkit.Until(t, waitTimeout, func() bool {
		events := w.eventsOf(name)
		return len(events) > 0 && events[0].Reason == "RemediationActionFailed" && strings.Contains(events[0].Message, "played by the test")
	})
	on.Store(false)
	w.settle(name, "it works", func(s v1alpha1.NodeHealthCheckStatus) bool {
		return s.Phase == v1alpha1.PhaseEnabled && !strings.Contains(s.Reason, "evaluation") && len(s.Conditions) == 1
	})
}

// Objects that are refused, here by a quota, are one sentence of the status and one Event,
// whatever the number of nodes.
func TestRefusedObjectsAreReportedOnce(t *testing.T) {
	w := newWorld(t, "refused")
	ref := w.template(rebootKind, "")
	for _, n := range []string{"a", "b", "c"} {
		w.fall(w.node(n))
	}
	name := w.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &ref })
	w.start(func(config *rest.Config, _ *Deps) {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return transport(func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/rebootnodes") {
					return answer(r, http.StatusForbidden, "Forbidden"), nil
				}
				return next.RoundTrip(r)
			})
		})
	}, nil)
	s := w.settle(name, "three are refused", func(s v1alpha1.NodeHealthCheckStatus) bool {
		return strings.HasSuffix(s.Reason, ", 3 pending: the API server rejects the remediation object")
	})
	for _, u := range s.UnhealthyNodes {
		if !strings.Contains(u.Waiting, "RebootNode "+u.Name) {
			t.Errorf("node %+v", u)
		}
	}
	testkit.Until(t, waitTimeout, func() bool {
		reported := 0
		for _, e := range w.eventsOf(name) {
			if e.Reason == "RemediationSkipped" {
				reported++
			}
		}
		if reported > 1 {
			t.Fatalf("%d Events", reported)
		}
		return reported == 1
	})
}
