package reconciler

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nvidia/nvsentinel/repair-chain/chain"
	"github.com/nvidia/nvsentinel/repair-chain/internal/work"
)

// kinds are those of steps' objects, which are known only when a run makes one. Each is
// watched from then on, in the namespace where its objects are and in no other, and enqueues
// the run that its object names.
type kinds struct {
	live    client.Reader
	cache   cache.Cache // of the kinds of the cluster
	open    func(namespace string) (cache.Cache, error)
	watcher controller.Controller

	mu       sync.Mutex
	spaces   map[string]cache.Cache // by namespace
	followed map[scope]bool
}

// scope is where objects of a kind are; without a namespace the kind is of the cluster.
type scope struct {
	kind      schema.GroupVersionKind
	namespace string
}

// followLimit bounds the read that checks whether a kind can be watched.
const followLimit = 10 * time.Second

// follow has a kind watched. It first tries to read at the API server itself, whose answer
// contains the error that the watch would not show.
func (k *kinds) follow(ctx context.Context, at scope) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.followed[at] {
		return nil
	}
	kind := at.kind
	ctx, cancel := context.WithTimeout(ctx, followLimit)
	defer cancel()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := k.live.List(ctx, list, client.Limit(1), client.InNamespace(at.namespace)); err != nil {
		return fmt.Errorf("reading %s objects: %w", kind.Kind, err)
	}
	seen, err := k.cacheOf(at.namespace)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	if err := k.watcher.Watch(source.Kind[client.Object](seen, object, handler.EnqueueRequestsFromMapFunc(runOf))); err != nil {
		return fmt.Errorf("watching %s objects: %w", kind.Kind, err)
	}
	k.followed[at] = true
	return nil
}

// cacheOf is the cache of a namespace.
func (k *kinds) cacheOf(namespace string) (cache.Cache, error) {
	if namespace == "" {
		return k.cache, nil
	}
	if k.spaces[namespace] == nil {
		made, err := k.open(namespace)
		if err != nil {
			return nil, fmt.Errorf("creating the cache of namespace %s: %w", namespace, err)
		}
		k.spaces[namespace] = made
	}
	return k.spaces[namespace], nil
}

// runOf is the run that a step's object names.
func runOf(_ context.Context, o client.Object) []reconcile.Request {
	name := o.GetLabels()[chain.RunLabel]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
}

// marked is a resource with the places where a test may end the process.
type marked struct {
	work.Resource
	here func(point string)
}

// Create makes an object.
func (m marked) Create(ctx context.Context, o *unstructured.Unstructured, options metav1.CreateOptions, sub ...string) (*unstructured.Unstructured, error) {
	made, err := m.Resource.Create(ctx, o, options, sub...)
	m.here("repair-chain/created")
	return made, err
}

// Patch changes an object.
//
//nolint:revive // the dynamic client's
func (m marked) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, options metav1.PatchOptions, sub ...string) (*unstructured.Unstructured, error) {
	changed, err := m.Resource.Patch(ctx, name, pt, data, options, sub...)
	m.here("repair-chain/patched")
	return changed, err
}
