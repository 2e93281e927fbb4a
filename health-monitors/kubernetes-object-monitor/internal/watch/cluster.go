package watch

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/policy"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/retry"
)

// missingEvery is how often the API server is asked for a kind that it does not
// serve; no request is made when all kinds are there.
const missingEvery = 10 * time.Second

// cluster is the objects that one set of policies needs: one informer per kind,
// which keep only what the expressions read.
type cluster struct {
	set     *policy.Set
	client  dynamic.Interface
	mapper  meta.RESTMapper
	clock   clock.Clock
	log     *slog.Logger
	metrics *Metrics
	enqueue func(item) // an object has changed
	filled  func(kind schema.GroupVersionKind)

	mu      sync.Mutex
	synced  map[schema.GroupVersionKind]kindStore
	missing map[schema.GroupVersionKind]bool
	trouble map[schema.GroupVersionKind]trouble
}

// newCluster prepares the informers; run starts them.
func newCluster(config *rest.Config, set *policy.Set) (*cluster, error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating the API client: %w", err)
	}
	c := &cluster{
		set: set, synced: map[schema.GroupVersionKind]kindStore{}, missing: map[schema.GroupVersionKind]bool{},
		trouble: map[schema.GroupVersionKind]trouble{},
	}
	if c.mapper, err = apiutil.NewDynamicRESTMapper(config, httpClient); err != nil {
		return nil, fmt.Errorf("creating the REST mapper: %w", err)
	}
	if c.client, err = dynamic.NewForConfigAndClient(config, httpClient); err != nil {
		return nil, fmt.Errorf("creating the dynamic API client: %w", err)
	}
	return c, nil
}

// run keeps the informers until ctx ends.
func (c *cluster) run(ctx context.Context) {
	var tasks sync.WaitGroup
	for _, kind := range c.set.Kinds() {
		tasks.Go(func() { c.open(ctx, kind) })
	}
	<-ctx.Done()
	kube.AwaitStop(tasks.Wait)
}

// open runs the informer of a kind, from when the API server serves it until ctx
// ends.
func (c *cluster) open(ctx context.Context, kind schema.GroupVersionKind) {
	missing := c.metrics.Missing.WithLabelValues(kind.Kind)
	for output := false; ; output = true {
		mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		c.isMissing(kind, meta.IsNoMatchError(err))
		if err == nil {
			missing.Set(0)
			c.follow(ctx, kind, mapping)
			return
		}
		missing.Set(1)
		if !output && ctx.Err() == nil {
			c.log.Warn("kind not watched yet, its policies are pending", "kind", kind.String(), "served", !meta.IsNoMatchError(err), "error", err)
		}
		if !retry.Sleep(ctx, c.clock, missingEvery) {
			return
		}
	}
}

// follow runs the informer of a kind until ctx ends, and calls filled once its cache is
// synced.
func (c *cluster) follow(ctx context.Context, kind schema.GroupVersionKind, mapping *meta.RESTMapping) {
	kept := kindStore{kind: kind}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		kept.namespaced, kept.namespace = true, c.set.Namespace(kind)
	}
	informer := dynamicinformer.NewFilteredDynamicInformer(c.client, mapping.Resource, kept.namespace, 0, toolscache.Indexers{}, nil).Informer()
	kept.store = informer.GetStore()
	registration, err := c.prepare(kind, informer)
	if err != nil {
		c.log.Error("kind not watched", "kind", kind.String(), "error", err)
		return
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { informer.RunWithContext(ctx) })
	if !toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return
	}
	c.mu.Lock()
	c.synced[kind] = kept
	delete(c.trouble, kind)
	c.mu.Unlock()
	c.log.Info("kind watched", "kind", kind.String())
	c.filled(kind)
}

// prepare sets the cached fields and the handlers of an informer that does not run yet.
func (c *cluster) prepare(kind schema.GroupVersionKind, informer toolscache.SharedIndexInformer) (toolscache.ResourceEventHandlerRegistration, error) {
	if err := informer.SetTransform(pack(c.set, kind)); err != nil {
		return nil, fmt.Errorf("setting the cached fields: %w", err)
	}
	failed := func(_ context.Context, _ *toolscache.Reflector, err error) { c.watchFailed(kind, err) }
	if err := informer.SetWatchErrorHandlerWithContext(failed); err != nil {
		return nil, fmt.Errorf("setting the watch error handler: %w", err)
	}
	handler := toolscache.ResourceEventHandlerFuncs{}
	if len(c.set.Of(kind)) > 0 { // else it is only looked up
		changed := func(x any) { c.changed(kind, x) }
		handler = toolscache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(_, x any) { changed(x) }, DeleteFunc: changed}
	}
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return nil, fmt.Errorf("adding the event handler: %w", err)
	}
	return registration, nil
}

// changed enqueues an object that the informer reports. It ignores objects until their
// cache is filled, because all of them are evaluated then.
func (c *cluster) changed(kind schema.GroupVersionKind, x any) {
	if !c.isSynced(kind) {
		return
	}
	if gone, ok := x.(toolscache.DeletedFinalStateUnknown); ok {
		if namespace, name, err := toolscache.SplitMetaNamespaceKey(gone.Key); err == nil {
			c.enqueue(newItem(kind, namespace, name))
		}
		return
	}
	if object, err := meta.Accessor(x); err == nil {
		c.enqueue(newItem(kind, object.GetNamespace(), object.GetName()))
	}
}

func (c *cluster) isSynced(kind schema.GroupVersionKind) bool {
	_, ok := c.of(kind)
	return ok
}

// of are the objects of a kind, as soon as all of them are known.
func (c *cluster) of(kind schema.GroupVersionKind) (kindStore, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept, ok := c.synced[kind]
	return kept, ok
}

// Find is the object from the cache, nil when it certainly does not exist. It is the
// caller's own.
func (c *cluster) Find(kind schema.GroupVersionKind, namespace, name string) (map[string]any, error) {
	kept, ok := c.of(kind)
	if !ok {
		return nil, fmt.Errorf("finding %s %s/%s: %w", kind.Kind, namespace, name, errNotFilled)
	}
	object, err := kept.find(namespace, name)
	if err != nil {
		return nil, fmt.Errorf("finding %s %s/%s: %w", kind.Kind, namespace, name, err)
	}
	return object, nil
}

// list is every object of a kind in the cache.
func (c *cluster) list(kind schema.GroupVersionKind) []item {
	kept, _ := c.of(kind)
	return kept.list()
}
