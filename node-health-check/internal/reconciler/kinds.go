package reconciler

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// kinds are those of remediations and templates, which are known only when a check
// names them. Each is watched from then on. It is used under the controller's lock.
type kinds struct {
	mapper  meta.RESTMapper
	live    client.Reader
	cache   cache.Cache
	watcher controller.Controller
	// templates and remediations map an object to the checks it matters to.
	templates, remediations handler.EventHandler

	followed map[schema.GroupVersionKind]bool
}

// errNoKind: the API server does not serve the kind.
var errNoKind = errors.New("the API server does not serve the kind")

func isNoKind(err error) bool { return errors.Is(err, errNoKind) }

// lasting reports whether an error of a read is the API server's last word, and not that
// it was away or busy.
func lasting(err error) bool {
	return isNoKind(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}

// namespaced reports whether objects of a kind have a namespace.
func (k *kinds) namespaced(kind schema.GroupVersionKind) (bool, error) {
	mapping, err := k.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return false, fmt.Errorf("%s: %w", kind, errNoKind)
	}
	if err != nil {
		return false, fmt.Errorf("discovering the resource of %s: %w", kind, err)
	}
	return mapping.Scope.Name() == meta.RESTScopeNameNamespace, nil
}

// logged is a source that logs have by its kind.
type logged struct {
	source.SyncingSource
	kind schema.GroupVersionKind
}

// MarshalText implements encoding.TextMarshaler.
func (l logged) MarshalText() ([]byte, error) { return []byte(l.kind.String()), nil }

// follow has a kind watched and its cache filled. The first time it tries to read at
// the API server itself, whose answer shows what the watch would not.
func (k *kinds) follow(ctx context.Context, kind schema.GroupVersionKind, template bool) error {
	if _, err := k.namespaced(kind); err != nil {
		return err
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if !k.followed[kind] {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := k.live.List(ctx, list, client.Limit(1)); err != nil {
			return fmt.Errorf("reading %s objects: %w", kind.Kind, err)
		}
		to, only := k.remediations, []predicate.Predicate{predicate.Funcs{UpdateFunc: remediationChanged}}
		if template {
			// That a remediator supports several templates is an annotation.
			to, only = k.templates, []predicate.Predicate{predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{})}
		}
		if err := k.watcher.Watch(logged{source.Kind[client.Object](k.cache, object, to, only...), kind}); err != nil {
			return fmt.Errorf("watching %s objects: %w", kind.Kind, err)
		}
		k.followed[kind] = true
	}
	if _, err := k.cache.GetInformer(ctx, object); err != nil {
		return fmt.Errorf("syncing the cache of %s objects: %w", kind.Kind, err)
	}
	return nil
}
