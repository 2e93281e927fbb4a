package reconciler

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// The leases may be listed and not watched: the service is not ready and reports it, works
// on, and is ready again when they may be.
func TestARefusedWatchIsNotReady(t *testing.T) {
	w := newWorld(t, "unwatched")
	a := w.node("a")
	ref := w.template(rebootKind, "")
	name := w.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate = &ref })
	var refuses atomic.Bool
	refuses.Store(true)
	w.start(func(config *rest.Config, _ *Deps) {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return transport(func(r *http.Request) (*http.Response, error) {
				if refuses.Load() && strings.HasSuffix(r.URL.Path, "/leases") && r.URL.Query().Has("watch") {
					return answer(r, http.StatusForbidden, "Forbidden"), nil
				}
				return next.RoundTrip(r)
			})
		})
	}, nil)
	testkit.Until(t, waitTimeout, func() bool {
		ok, why := w.watch.Synced()
		return !ok && strings.Contains(why, "Lease cannot be watched")
	})
	w.fall(a)
	w.settle(name, "it works on", remediations(1))
	refuses.Store(false)
	w.clock.step(time.Hour)
	testkit.Until(t, waitTimeout, func() bool { ok, _ := w.watch.Synced(); return ok })
}

// A field of medik8s' newer operator that another definition of the kind lets in disables
// the check: remediations would begin sooner than was asked for.
func TestAStormThatEndsByTheClock(t *testing.T) {
	w := newWorld(t, "cooldown")
	w.ofOthers()
	ref := w.template(rebootKind, "")
	name := w.check(func(s *v1alpha1.NodeHealthCheckSpec) { s.RemediationTemplate, s.StormCooldownDuration = &ref, "5m" })
	w.start(nil, nil)
	s := w.settle(name, "it is disabled", phase(v1alpha1.PhaseDisabled))
	if c := s.Conditions[0]; c.Reason != v1alpha1.ReasonSpecInvalid || !strings.Contains(c.Message, "set spec.stormRecoveryThreshold") {
		t.Errorf("condition %+v", c)
	}
}
