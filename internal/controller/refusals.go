package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/data-models/extra"
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
			why = append(why, fmt.Sprintf("%s cannot be watched, changes are detected late: %v", name, one.err))
		}
	}
	return strings.Join(why, ", ")
}

// keeping is a client whose updates delete nothing that this version's types do not know:
// an update sends a whole object, and the type of an older version lacks the fields of a
// newer one. The object is read once more before it is written, as it is; if it has such
// fields, they are sent along. Writes of an object without a resourceVersion, of patches
// and of unstructured objects are the client's own.
type keeping struct{ client.Client }

// Update implements client.Writer.
func (k keeping) Update(ctx context.Context, o client.Object, options ...client.UpdateOption) error {
	return k.write(ctx, o, func(o client.Object) error { return k.Client.Update(ctx, o, options...) })
}

// Status implements client.StatusClient.
func (k keeping) Status() client.SubResourceWriter { return keepingStatus{k.Client.Status(), k} }

type keepingStatus struct {
	client.SubResourceWriter
	all keeping
}

// Update implements client.SubResourceWriter.
func (k keepingStatus) Update(ctx context.Context, o client.Object, options ...client.SubResourceUpdateOption) error {
	return k.all.write(ctx, o, func(o client.Object) error { return k.SubResourceWriter.Update(ctx, o, options...) })
}

// write writes the object, with what it has that its type does not know. What was read and
// what is written are of one resourceVersion, so nothing comes between.
func (k keeping) write(ctx context.Context, o client.Object, do func(client.Object) error) error {
	if _, raw := o.(runtime.Unstructured); raw || o.GetResourceVersion() == "" {
		return do(o)
	}
	kind, err := k.GroupVersionKindFor(o)
	if err != nil {
		return fmt.Errorf("finding the kind of %s: %w", o.GetName(), err)
	}
	stored := &unstructured.Unstructured{}
	stored.SetGroupVersionKind(kind)
	if err := k.Get(ctx, client.ObjectKeyFromObject(o), stored); err != nil {
		return err //nolint:wrapcheck // as that of the write
	}
	if stored.GetResourceVersion() != o.GetResourceVersion() {
		return apierrors.NewConflict(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, o.GetName(), errors.New("it has changed since it was read"))
	}
	unknown, err := prune(stored.Object, o)
	if err != nil {
		return fmt.Errorf("reading the unknown fields of %s %s: %w", kind.Kind, o.GetName(), err)
	}
	if unknown == nil {
		return do(o)
	}
	whole, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return fmt.Errorf("encoding %s %s: %w", kind.Kind, o.GetName(), err)
	}
	unknown.Merge(whole)
	sent := &unstructured.Unstructured{Object: whole}
	sent.SetGroupVersionKind(kind)
	if err := do(sent); err != nil {
		return err
	}
	return convert(sent.Object, o)
}

// prune is what a stored object has and the type of another has not.
func prune(stored map[string]any, of client.Object) (*extra.Extra, error) {
	known, ok := reflect.TypeAssert[client.Object](reflect.New(reflect.TypeOf(of).Elem()))
	if !ok {
		return nil, fmt.Errorf("%T is not an object", of)
	}
	if err := convert(stored, known); err != nil {
		return nil, err
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(known)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says what it was encoding
	}
	return extra.Prune(stored, tree), nil
}

func convert(from map[string]any, to client.Object) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(from, to) //nolint:wrapcheck // it names the field
}
