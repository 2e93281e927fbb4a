package rebootnode

import (
	"context"
	"errors"
	"fmt"
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

// Watch rings for the controller: an object's changes ring, and so do those
// changes of its Node that a decision depends on.
type Watch struct {
	controller *Controller
	config     *rest.Config
	workers    int

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

// NewWatch makes the watch; workers is how many objects are worked on at once.
func NewWatch(c *Controller, config *rest.Config, workers int) *Watch {
	return &Watch{controller: c, config: config, workers: workers}
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
	ctrl.SetLogger(logr.FromSlogHandler(w.controller.Log.Handler())) // controller-runtime complains on stderr without one
	mgr := w.await(ctx, s)
	if mgr == nil {
		return nil
	}
	go func() { w.synced.Store(mgr.GetCache().WaitForCacheSync(ctx)) }()
	return mgr.Start(ctx)
}

// await waits until the API server serves RebootNodes and they can be watched:
// a janitor that starts before their definition is there, or while the API
// server is away, is not ready and says why, and begins when it can. It is nil
// when ctx ended before.
func (w *Watch) await(ctx context.Context, s *runtime.Scheme) (mgr ctrl.Manager) {
	err := wait.PollUntilContextCancel(ctx, kindPoll, true, func(ctx context.Context) (bool, error) {
		err := w.controller.Objects.List(ctx, &v1alpha1.RebootNodeList{}, client.Limit(1))
		if err == nil {
			mgr, err = w.manager(ctx, s)
		}
		why := ""
		switch {
		case meta.IsNoMatchError(err):
			why = "RebootNode is not served by the API server"
		case err != nil:
			why = "RebootNodes can not be read: " + err.Error()
		}
		if before, _ := w.missing.Swap(why).(string); before != why {
			w.controller.Log.Info("looking for repair objects", "missing", why)
		}
		return why == "", nil
	})
	if err != nil {
		return nil
	}
	return mgr
}

// manager prepares the watches, which asks the API server what it serves. One
// whose preparation failed was never started and is dropped.
func (w *Watch) manager(ctx context.Context, s *runtime.Scheme) (ctrl.Manager, error) {
	mgr, err := ctrl.NewManager(w.config, ctrl.Options{
		Scheme: s, Logger: logr.FromSlogHandler(w.controller.Log.Handler()),
		Metrics: server.Options{BindAddress: "0"}, // the daemon serves ours
		Cache:   cache.Options{DefaultTransform: kube.StripManagedFields},
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	return mgr, w.register(ctx, mgr)
}

// register adds the controller to a manager.
func (w *Watch) register(ctx context.Context, mgr ctrl.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.RebootNode{}, byNode, nodeOfOpen); err != nil {
		return fmt.Errorf("indexing objects by node: %w", err)
	}
	unchecked := true
	err := ctrl.NewControllerManagedBy(mgr).Named("rebootnode").
		For(&v1alpha1.RebootNode{}).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(w.controller.objectsOf(mgr.GetClient())),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: relevant})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: w.workers,
			CacheSyncTimeout:        syncLimit,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
			// Names are unique per process only for metrics that we do not serve.
			SkipNameValidation: &unchecked,
		}).Complete(w.controller)
	if err != nil {
		return fmt.Errorf("adding the reboot controller: %w", err)
	}
	return nil
}

// nodeOfOpen is the index of open objects by their node.
func nodeOfOpen(o client.Object) []string {
	object, ok := o.(*v1alpha1.RebootNode)
	if !ok || object.Status.CompletionTime != nil {
		return nil
	}
	return []string{object.Spec.NodeName}
}

// objectsOf lists the open objects of a Node.
func (c *Controller) objectsOf(cache client.Reader) handler.MapFunc {
	return func(ctx context.Context, node client.Object) []reconcile.Request {
		var list v1alpha1.RebootNodeList
		if err := cache.List(ctx, &list, client.MatchingFields{byNode: node.GetName()}); err != nil {
			c.Log.Warn("listing a node's objects failed; they are looked at by the clock", "node", node.GetName(), "error", err)
			return nil
		}
		var out []reconcile.Request
		for i := range list.Items {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
		return out
	}
}

// relevant drops a Node's changes that no decision depends on.
func relevant(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.Node)
	after, ok2 := e.ObjectNew.(*corev1.Node)
	return !ok || !ok2 || nodeFacts(before) != nodeFacts(after)
}
