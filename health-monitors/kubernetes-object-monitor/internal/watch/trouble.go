package watch

import (
	"errors"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// troubleTimeout is how long a failed list or watch counts: an informer tries again
// within 30 seconds, and reports failures only.
const troubleTimeout = time.Minute

// trouble is why a kind could not be listed or watched.
type trouble struct {
	at     time.Time
	err    error
	denied bool // a right is missing
}

// watchFailed hears from the informers; the ends of watches that belong to
// their life are none.
func (c *cluster) watchFailed(kind schema.GroupVersionKind, err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	denied := apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
	c.mu.Lock()
	before := c.trouble[kind]
	c.trouble[kind] = trouble{c.clock.Now(), err, denied}
	c.mu.Unlock()
	c.metrics.ReconciliationErrors.WithLabelValues(kind.Kind, reasonWatch).Inc()
	switch {
	case before.err != nil && before.denied == denied:
	case denied:
		c.log.Error("kind not watched: permission missing (print it with the subcommand rbac), its policies are pending", "kind", kind.String(), "error", err)
	default:
		c.log.Warn("kind watch interrupted, its policies use the last known objects", "kind", kind.String(), "error", err)
	}
}

// isMissing notes whether the API server does not serve a kind.
func (c *cluster) isMissing(kind schema.GroupVersionKind, missing bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missing[kind] = missing
}

// ready reports what is not watched, and why. A kind that the API server does not
// serve holds up its own policies only, and readiness not at all.
func (c *cluster) ready() (ok bool, detail string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ok = true
	var details []string
	for _, kind := range c.set.Kinds() {
		_, synced := c.synced[kind]
		switch t := c.trouble[kind]; {
		case t.err != nil && c.clock.Since(t.at) < troubleTimeout && (t.denied || !synced):
			ok = false
			details = append(details, "kind "+kind.String()+" cannot be watched: "+t.err.Error())
		case synced:
		case c.missing[kind]:
			details = append(details, "kind "+kind.String()+" is not served by the API server")
		default:
			ok = false
			details = append(details, "kind "+kind.String()+" is being listed")
		}
	}
	if len(details) == 0 {
		return true, "all kinds are watched"
	}
	return ok, strings.Join(details, "; ")
}
