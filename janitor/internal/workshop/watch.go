package workshop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/janitor/api/v1alpha1"
)

// byNode indexes open objects by the node they are for.
const byNode = "spec.nodeName"

// Backoff of an object whose pass failed.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Objects is a client that reads and writes repair objects at the API server
// itself.
func Objects(config *rest.Config) (client.Client, error) {
	s, err := scheme()
	if err != nil {
		return nil, err
	}
	objects, err := client.New(config, client.Options{Scheme: s})
	if err != nil {
		return nil, fmt.Errorf("making the client of repair objects: %w", err)
	}
	return objects, nil
}

// scheme knows the janitor's kinds and those of Kubernetes.
func scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		return nil, fmt.Errorf("registering the kinds: %w", err)
	}
	return s, nil
}

// Member is what a watch rings for: the controller of one kind.
type Member interface {
	// Unserved is why its objects can not be read; empty when they can.
	Unserved(ctx context.Context) string
	// Caches bound what it watches of kinds that are not the janitor's.
	Caches() map[client.Object]cache.ByObject
	// Register adds it to a manager.
	Register(ctx context.Context, mgr ctrl.Manager, options controller.Options) error
}

// Watch rings for the controllers: an object's changes ring, and so do those
// changes of its Node that a decision depends on.
type Watch struct {
	members []Member
	config  *rest.Config
	workers int
	log     *slog.Logger

	running, synced atomic.Bool
	// missing is why the objects can not be watched; empty when they can.
	missing atomic.Value
}

// kindPoll is how often a missing kind, or an API server that is away, is
// looked for.
const kindPoll = 2 * time.Second

// syncLimit is how long the caches may take to be filled: an API server that is
// away by then is waited for, not given up.
const syncLimit = 24 * time.Hour

// NewWatch makes the watch; workers is how many objects of a kind are worked on
// at once.
func NewWatch(config *rest.Config, workers int, log *slog.Logger, members ...Member) *Watch {
	return &Watch{members: members, config: config, workers: workers, log: log}
}

// Synced says whether a running watch has its caches.
func (w *Watch) Synced() (bool, string) {
	if why, _ := w.missing.Load().(string); why != "" {
		return false, why
	}
	if w.running.Load() && !w.synced.Load() {
		return false, "the caches of nodes and repair objects are not filled yet"
	}
	return true, "synced"
}

// Run carries out repairs until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	w.running.Store(true)
	s, err := scheme()
	if err != nil {
		return err
	}
	ctrl.SetLogger(logr.FromSlogHandler(w.log.Handler())) // controller-runtime complains on stderr without one
	mgr := w.await(ctx, s)
	if mgr == nil {
		return nil
	}
	go func() { w.synced.Store(mgr.GetCache().WaitForCacheSync(ctx)) }()
	return mgr.Start(ctx)
}

// await waits until the API server serves the kinds and they can be watched:
// a janitor that starts before their definition is there, or while the API
// server is away, is not ready and says why, and begins when it can. It is nil
// when ctx ended before.
func (w *Watch) await(ctx context.Context, s *runtime.Scheme) (mgr ctrl.Manager) {
	err := wait.PollUntilContextCancel(ctx, kindPoll, true, func(ctx context.Context) (bool, error) {
		why := w.unserved(ctx)
		if why == "" {
			var err error
			if mgr, err = w.manager(ctx, s); err != nil {
				why = "repair objects can not be watched: " + err.Error()
			}
		}
		if before, _ := w.missing.Swap(why).(string); before != why {
			w.log.Info("looking for repair objects", "missing", why)
		}
		return why == "", nil
	})
	if err != nil {
		return nil
	}
	return mgr
}

// unserved is why the objects of a kind can not be read; empty when they can.
func (w *Watch) unserved(ctx context.Context) string {
	for _, m := range w.members {
		if why := m.Unserved(ctx); why != "" {
			return why
		}
	}
	return ""
}

// Unserved is why the objects of the kind can not be read; empty when they can.
func (c *Controller) Unserved(ctx context.Context) string {
	return Unserved(ctx, c.Objects, c.kind.Name, c.kind.list())
}

// Unserved is why the objects of a list's kind can not be read; empty when they can.
func Unserved(ctx context.Context, objects client.Client, kind string, list client.ObjectList) string {
	switch err := objects.List(ctx, list, client.Limit(1)); {
	case meta.IsNoMatchError(err):
		return kind + " is not served by the API server"
	case err != nil:
		return kind + " objects can not be read: " + err.Error()
	}
	return ""
}

// manager prepares the watches, which asks the API server what it serves. One
// whose preparation failed was never started and is dropped.
func (w *Watch) manager(ctx context.Context, s *runtime.Scheme) (ctrl.Manager, error) {
	caches := map[client.Object]cache.ByObject{}
	for _, m := range w.members {
		maps.Copy(caches, m.Caches())
	}
	mgr, err := ctrl.NewManager(w.config, ctrl.Options{
		Scheme: s, Logger: logr.FromSlogHandler(w.log.Handler()),
		Metrics: server.Options{BindAddress: "0"}, // the daemon serves ours
		Cache:   cache.Options{DefaultTransform: kube.StripManagedFields, ByObject: caches},
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	unchecked := true
	for _, m := range w.members {
		err := m.Register(ctx, mgr, controller.Options{
			MaxConcurrentReconciles: w.workers,
			CacheSyncTimeout:        syncLimit,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
			// Names are unique per process only for metrics that we do not serve.
			SkipNameValidation: &unchecked,
		})
		if err != nil {
			return nil, err
		}
	}
	return mgr, nil
}

// Caches are none: the controller watches Nodes, and of them all.
func (c *Controller) Caches() map[client.Object]cache.ByObject { return nil }

// Register adds the controller to a manager.
func (c *Controller) Register(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, c.kind.object(), byNode, nodeOfOpen); err != nil {
		return fmt.Errorf("indexing objects by node: %w", err)
	}
	err := ctrl.NewControllerManagedBy(mgr).Named(strings.ToLower(c.kind.Name)).
		For(c.kind.object(), builder.WithPredicates(predicate.Funcs{UpdateFunc: byOthers})).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(c.objectsOf(mgr.GetClient())),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: relevant})).
		WithOptions(options).Complete(c)
	if err != nil {
		return fmt.Errorf("adding the controller of %s: %w", c.kind.Name, err)
	}
	return nil
}

// nodeOfOpen is the index of open objects by their node.
func nodeOfOpen(o client.Object) []string {
	object, ok := o.(v1alpha1.Repair)
	if !ok || object.Progress().CompletionTime != nil {
		return nil
	}
	return []string{v1alpha1.NodeOf(object)}
}

// objectsOf lists the open objects of a Node.
func (c *Controller) objectsOf(cache client.Reader) handler.MapFunc {
	return func(ctx context.Context, node client.Object) []reconcile.Request {
		list := c.kind.list()
		var out []reconcile.Request
		err := cache.List(ctx, list, client.MatchingFields{byNode: node.GetName()})
		if err == nil {
			err = meta.EachListItem(list, func(o runtime.Object) error {
				if object, ok := o.(client.Object); ok {
					out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)})
				}
				return nil
			})
		}
		if err != nil {
			c.Log.Warn("listing a node's objects failed; they are looked at by the clock", "node", node.GetName(), "error", err)
		}
		return out
	}
}

// byOthers drops an object's changes that are the janitor's own: of its status,
// where others only set that a signal was sent by hand, and of its finalizer.
func byOthers(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(v1alpha1.Repair)
	after, ok2 := e.ObjectNew.(v1alpha1.Repair)
	if !ok || !ok2 {
		return true
	}
	was, is := objectFacts(before), objectFacts(after)
	return before.GetGeneration() != after.GetGeneration() || was.Session != is.Session || was.GivenUp != is.GivenUp ||
		was.Deleting != is.Deleting || was.Acknowledged != is.Acknowledged && is.Signals == 0
}

// relevant drops a Node's changes that no decision depends on.
func relevant(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.Node)
	after, ok2 := e.ObjectNew.(*corev1.Node)
	return !ok || !ok2 || NodeFacts(before) != NodeFacts(after)
}
