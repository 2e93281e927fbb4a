package watch

import (
	"errors"
	"fmt"
	"unique"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/policy"
	"github.com/nvidia/nvsentinel/internal/kube"
)

// item names one object of a watched kind. There is one for each object in the plan of
// turns, so that it is small: all objects of a kind share the kind.
type item struct {
	kind            unique.Handle[schema.GroupVersionKind]
	namespace, name string
}

func newItem(kind schema.GroupVersionKind, namespace, name string) item {
	return item{unique.Make(kind), namespace, name}
}

// Errors of an object that is not known.
var (
	// errNotFilled means that nothing is known about objects of a kind yet.
	errNotFilled = errors.New("the cache of this kind is not synced yet")
	errNotCached = errors.New("objects of this kind are cached only from the namespace")
)

// pack makes the transform of a kind's informer: of an object it keeps what the
// expressions read, as bytes. What is packed already stays as it is.
func pack(set *policy.Set, kind schema.GroupVersionKind) toolscache.TransformFunc {
	return func(x any) (any, error) {
		object, ok := x.(*unstructured.Unstructured)
		if !ok {
			return x, nil
		}
		raw, err := encode(set.Prune(kind, policy.Normal(kind, object.Object)))
		if err != nil {
			return nil, fmt.Errorf("encoding %s %s/%s: %w", kind.Kind, object.GetNamespace(), object.GetName(), err)
		}
		return &kube.Packed{Namespace: object.GetNamespace(), Name: object.GetName(), Version: object.GetResourceVersion(), Raw: raw}, nil
	}
}

// unpack decodes a packed object as a client would have decoded it.
func unpack(x any) (map[string]any, error) {
	packed, ok := x.(*kube.Packed)
	if !ok {
		return nil, fmt.Errorf("unexpected object of type %T in the cache", x)
	}
	var out map[string]any
	if err := json.Unmarshal(packed.Raw, &out); err != nil {
		return nil, fmt.Errorf("decoding a cached object: %w", err)
	}
	return out, nil
}

// kindStore is the objects of one kind, in the store of their informer.
type kindStore struct {
	kind       schema.GroupVersionKind
	store      toolscache.Store
	namespaced bool
	namespace  string // the only one that is kept; empty is all
}

// find is one of them, nil when it does not exist. A kind without namespaces is found
// whatever namespace is asked for.
func (s kindStore) find(namespace, name string) (map[string]any, error) {
	switch {
	case !s.namespaced:
		namespace = ""
	case s.namespace != "" && namespace != s.namespace:
		return nil, fmt.Errorf("%w %s", errNotCached, s.namespace)
	}
	x, ok, err := s.store.GetByKey(toolscache.NewObjectName(namespace, name).String())
	if err != nil {
		return nil, fmt.Errorf("reading the store: %w", err)
	}
	if !ok {
		return nil, nil
	}
	return unpack(x)
}

// list names all of them.
func (s kindStore) list() []item {
	keys := s.store.ListKeys()
	out := make([]item, 0, len(keys))
	for _, key := range keys {
		if namespace, name, err := toolscache.SplitMetaNamespaceKey(key); err == nil {
			out = append(out, newItem(s.kind, namespace, name))
		}
	}
	return out
}
