package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/policy"
	"github.com/nvidia/nvsentinel/internal/delay"
	"github.com/nvidia/nvsentinel/internal/kube"
)

// missingEvery is how often the API server is asked for a kind that it does not
// serve; no request is made when all kinds are there.
const missingEvery = 10 * time.Second

// item is one object of a watched kind.
type item struct {
	kind            schema.GroupVersionKind
	namespace, name string
}

// cluster is the objects that one set of policies needs: one informer per kind,
// which keep only what the expressions read.
type cluster struct {
	set     *policy.Set
	objects cache.Cache
	clock   clock.Clock
	log     *slog.Logger
	metrics *Metrics
	enqueue func(item) // an object has changed
	filled  func(ctx context.Context, kind schema.GroupVersionKind)

	mu      sync.Mutex
	synced  map[schema.GroupVersionKind]bool
	missing map[schema.GroupVersionKind]bool
	trouble map[string]trouble // by the kind's text
}

// newCluster prepares the informers; run starts them.
func newCluster(config *rest.Config, set *policy.Set) (*cluster, error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making the API client: %w", err)
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("making the REST mapper: %w", err)
	}
	c := &cluster{
		set: set, synced: map[schema.GroupVersionKind]bool{}, missing: map[schema.GroupVersionKind]bool{}, trouble: map[string]trouble{},
	}
	share := true
	options := cache.Options{
		DefaultWatchErrorHandler: c.watchFailed,
		HTTPClient:               httpClient, Mapper: mapper, ReaderFailOnMissingInformer: true, DefaultUnsafeDisableDeepCopy: &share,
		DefaultTransform: func(x any) (any, error) {
			object, ok := x.(*unstructured.Unstructured)
			if ok {
				kind := object.GroupVersionKind()
				object.Object = set.Prune(kind, policy.Normal(kind, object.Object))
			}
			return x, nil
		},
		ByObject: map[client.Object]cache.ByObject{},
	}
	for _, kind := range set.Kinds() {
		if namespace := set.Namespace(kind); namespace != "" {
			options.ByObject[objectOf(kind)] = cache.ByObject{Namespaces: map[string]cache.Config{namespace: {}}}
		}
	}
	if c.objects, err = cache.New(config, options); err != nil {
		return nil, fmt.Errorf("making the cache: %w", err)
	}
	return c, nil
}

func objectOf(kind schema.GroupVersionKind) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	return object
}

// run keeps the informers until ctx ends.
func (c *cluster) run(ctx context.Context) error {
	var tasks sync.WaitGroup
	var failed error
	tasks.Go(func() { failed = c.objects.Start(ctx) })
	for _, kind := range c.set.Kinds() {
		tasks.Go(func() { c.open(ctx, kind) })
	}
	<-ctx.Done()
	kube.AwaitStop(tasks.Wait)
	if failed != nil && ctx.Err() == nil {
		return fmt.Errorf("watching objects: %w", failed)
	}
	return nil
}

// open starts the informer of a kind, as soon as the API server serves it, and
// tells when it is filled.
func (c *cluster) open(ctx context.Context, kind schema.GroupVersionKind) {
	missing := c.metrics.Missing.WithLabelValues(kind.Kind)
	for said := false; ; said = true {
		informer, err := c.objects.GetInformer(ctx, objectOf(kind), cache.BlockUntilSynced(false))
		c.isMissing(kind, meta.IsNoMatchError(err))
		if err == nil {
			missing.Set(0)
			c.follow(ctx, kind, informer)
			return
		}
		missing.Set(1)
		if !said && ctx.Err() == nil {
			c.log.Warn("kind is not watched yet; its policies wait for it", "kind", kind.String(), "served", !meta.IsNoMatchError(err), "error", err)
		}
		if !delay.For(ctx, c.clock, missingEvery) {
			return
		}
	}
}

func (c *cluster) follow(ctx context.Context, kind schema.GroupVersionKind, informer cache.Informer) {
	enqueue := func(x any) {
		if gone, ok := x.(toolscache.DeletedFinalStateUnknown); ok {
			namespace, name, err := toolscache.SplitMetaNamespaceKey(gone.Key)
			if err == nil {
				c.enqueue(item{kind, namespace, name})
			}
			return
		}
		if object, err := meta.Accessor(x); err == nil {
			c.enqueue(item{kind, object.GetNamespace(), object.GetName()})
		}
	}
	handler := toolscache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, x any) { enqueue(x) }, DeleteFunc: enqueue}
	if len(c.set.Of(kind)) == 0 { // only looked up
		handler = toolscache.ResourceEventHandlerFuncs{}
	}
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		c.log.Error("kind is not watched", "kind", kind.String(), "error", err)
		return
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return
	}
	c.mu.Lock()
	c.synced[kind] = true
	delete(c.trouble, kind.String())
	c.mu.Unlock()
	c.log.Info("kind is watched", "kind", kind.String())
	c.filled(ctx, kind)
}

// errNotFilled means that nothing is known about objects of a kind yet.
var errNotFilled = errors.New("the cache of this kind is not filled")

// Find is the object from the cache, nil when it certainly does not exist.
func (c *cluster) Find(kind schema.GroupVersionKind, namespace, name string) (map[string]any, error) {
	if !c.isSynced(kind) {
		return nil, fmt.Errorf("finding %s %s/%s: %w", kind.Kind, namespace, name, errNotFilled)
	}
	object := objectOf(kind)
	err := c.objects.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, object)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("finding %s %s/%s: %w", kind.Kind, namespace, name, err)
	}
	return object.Object, nil
}

func (c *cluster) isSynced(kind schema.GroupVersionKind) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.synced[kind]
}

// list is every object of a kind in the cache.
func (c *cluster) list(ctx context.Context, kind schema.GroupVersionKind) ([]item, error) {
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := c.objects.List(ctx, all); err != nil {
		return nil, fmt.Errorf("listing %s: %w", kind.Kind, err)
	}
	out := make([]item, len(all.Items))
	for i := range all.Items {
		out[i] = item{kind, all.Items[i].GetNamespace(), all.Items[i].GetName()}
	}
	return out, nil
}
