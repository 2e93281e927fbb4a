package reconciler

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// forbidding answers watches of a resource with 403 while on, as an API server does without
// the right to watch beside that to list.
type forbidding struct {
	next     http.RoundTripper
	resource string
	on       *atomic.Bool
}

func (f forbidding) RoundTrip(r *http.Request) (*http.Response, error) {
	if !f.on.Load() || !strings.HasSuffix(r.URL.Path, "/"+f.resource) || !r.URL.Query().Has("watch") {
		return f.next.RoundTrip(r)
	}
	const body = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`
	return &http.Response{
		StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}, nil
}

// TestARefusedWatchIsNotReady: the service may list a kind, but not watch it. It is not
// ready, gives the reason, works on, and is ready once it may watch.
func TestARefusedWatchIsNotReady(t *testing.T) {
	for resource, kind := range map[string]string{
		"repairruns": v1alpha1.RunKind, "repairchains": v1alpha1.ChainKind, "repairtemplates": v1alpha1.TemplateKind,
	} {
		t.Run(resource, func(t *testing.T) {
			o, deps := furnished(t, Deps{})
			now := clocktesting.NewFakePassiveClock(time.Now())
			var refuses atomic.Bool
			refuses.Store(true)
			config := rest.CopyConfig(o.cluster.RESTConfig())
			config.Wrap(func(next http.RoundTripper) http.RoundTripper { return forbidding{next, resource, &refuses} })
			deps.Clock = now
			watch := New(config, deps)
			o.start(watch)
			testkit.Until(t, waitTimeout, func() bool {
				ok, why := watch.Synced()
				return !ok && strings.Contains(why, kind+" cannot be watched")
			})
			run := runOfChain("refused-"+resource, o.twoTasks("refused-"+resource))
			o.make(run)
			o.task(run, "one")
			refuses.Store(false)
			now.SetTime(now.Now().Add(time.Hour))
			testkit.Until(t, waitTimeout, func() bool { ok, _ := watch.Synced(); return ok })
		})
	}
}
