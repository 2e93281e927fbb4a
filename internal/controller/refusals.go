package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// refusalLasts is how long a refused watch counts if it is not refused again. An informer
// tries again after up to a minute: its backoff of 30 seconds, and as much jitter.
const refusalLasts = 2 * time.Minute

// Refusals knows which watches the API server refuses. An informer whose watch is refused
// while its list is allowed counts as synced, and sees changes only by listing again.
type Refusals struct {
	clock clock.PassiveClock
	kinds map[string]string // descriptions of types, and their names

	mu   sync.Mutex
	last map[string]refusal
}

type refusal struct {
	at  time.Time
	err error
}

// NewRefusals counts the watches of some kinds.
func NewRefusals(now clock.PassiveClock, kinds ...client.Object) *Refusals {
	r := &Refusals{clock: now, kinds: map[string]string{}, last: map[string]refusal{}}
	for _, kind := range kinds {
		described := fmt.Sprintf("%T", kind)
		name := described[strings.LastIndex(described, ".")+1:]
		if raw, is := kind.(*unstructured.Unstructured); is {
			described, name = raw.GroupVersionKind().String(), raw.GetKind()
		}
		r.kinds[described] = name
	}
	return r
}

// Handle is a cache.WatchErrorHandlerWithContext.
func (r *Refusals) Handle(ctx context.Context, reflector *cache.Reflector, err error) {
	cache.DefaultWatchErrorHandler(ctx, reflector, err)
	r.note(reflector.TypeDescription(), err)
}

func (r *Refusals) note(described string, err error) {
	if name, counts := r.kinds[described]; counts && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.last[name] = refusal{r.clock.Now(), err}
	}
}

// Why names the watches that are refused now; empty without one, and for nil.
func (r *Refusals) Why() string {
	if r == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var why []string
	for _, name := range slices.Sorted(maps.Keys(r.last)) {
		if one := r.last[name]; r.clock.Since(one.at) < refusalLasts {
			why = append(why, fmt.Sprintf("%s can not be watched, changes are seen late: %v", name, one.err))
		}
	}
	return strings.Join(why, "; ")
}
