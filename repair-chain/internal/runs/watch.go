package runs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/repair-chain/api/v1alpha1"
	"github.com/nvidia/nvsentinel/repair-chain/chain"
)

const (
	// name of the controller and of the reporter of its Events.
	name = "repair-chain"
	// kindPoll is how often missing kinds are looked for.
	kindPoll = 2 * time.Second
	// syncLimit is how long the caches may take to be filled.
	syncLimit = 24 * time.Hour
	// firstRetry and lastRetry of an object whose pass failed.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 15 * time.Second
	// lanes is how many runs are taken on at once.
	lanes = 16
)

// Live is a client that reads and writes at the API server itself.
func Live(config *rest.Config) (client.Client, error) {
	s, err := scheme()
	if err != nil {
		return nil, err
	}
	live, err := client.New(config, client.Options{Scheme: s})
	if err != nil {
		return nil, fmt.Errorf("making the client: %w", err)
	}
	return live, nil
}

func scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		return nil, fmt.Errorf("registering the kinds: %w", err)
	}
	return s, nil
}

// Watch rings for the controller.
type Watch struct {
	deps   Deps
	config *rest.Config
	log    *slog.Logger

	running, synced atomic.Bool
	missing         atomic.Value // why runs can not be read; empty when they can
	// here marks the places where a test may end the process.
	here func(point string)
}

// New makes a watch.
func New(config *rest.Config, d Deps) *Watch {
	return &Watch{deps: d, config: config, log: d.Log, here: crashpoint.Here}
}

// Synced says whether a running watch has its caches.
func (w *Watch) Synced() (bool, string) {
	if why, _ := w.missing.Load().(string); why != "" {
		return false, why
	}
	if w.running.Load() && !w.synced.Load() {
		return false, "the caches of runs, chains and templates are not filled yet"
	}
	return true, "synced"
}

// Run takes runs on until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	w.running.Store(true)
	s, err := scheme()
	if err != nil {
		return err
	}
	ctrl.SetLogger(logr.FromSlogHandler(w.log.Handler())) // controller-runtime complains on stderr without one
	if !w.await(ctx) {
		return nil
	}
	mgr, err := w.manager(s)
	if err != nil {
		return err
	}
	go func() { w.synced.Store(mgr.GetCache().WaitForCacheSync(ctx)) }()
	return mgr.Start(ctx)
}

// await waits until the kinds are served, and is not ready meanwhile; false is that ctx
// ended before.
func (w *Watch) await(ctx context.Context) bool {
	err := wait.PollUntilContextCancel(ctx, kindPoll, true, func(ctx context.Context) (bool, error) {
		why := w.unserved(ctx)
		if before, _ := w.missing.Swap(why).(string); before != why {
			w.log.Info("looking for runs", "missing", why)
		}
		return why == "", nil
	})
	return err == nil
}

func (w *Watch) unserved(ctx context.Context) string {
	for kind, list := range map[string]client.ObjectList{
		v1alpha1.RunKind: &v1alpha1.RepairRunList{}, v1alpha1.ChainKind: &v1alpha1.RepairChainList{}, v1alpha1.TemplateKind: &v1alpha1.RepairTemplateList{},
	} {
		switch err := w.deps.Live.List(ctx, list, client.Limit(1)); {
		case meta.IsNoMatchError(err):
			return kind + " is not served by the API server"
		case err != nil:
			return kind + "s can not be read: " + err.Error()
		}
	}
	return ""
}

// manager prepares the watches: of the objects of steps only those that name a run.
func (w *Watch) manager(s *runtime.Scheme) (ctrl.Manager, error) {
	ofRuns, err := labels.NewRequirement(chain.RunLabel, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("making the selector of steps' objects: %w", err)
	}
	all := cache.ByObject{Label: labels.Everything()}
	steps := cache.Options{Scheme: s, DefaultTransform: kube.StripManagedFields, DefaultLabelSelector: labels.NewSelector().Add(*ofRuns)}
	main := steps
	main.ByObject = map[client.Object]cache.ByObject{&v1alpha1.RepairRun{}: all, &v1alpha1.RepairChain{}: all, &v1alpha1.RepairTemplate{}: all}
	mgr, err := ctrl.NewManager(w.config, ctrl.Options{
		Scheme: s, Logger: logr.FromSlogHandler(w.log.Handler()), Cache: main,
		Metrics: server.Options{BindAddress: "0"}, // the daemon serves ours
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	c := &Controller{Deps: w.deps, events: mgr.GetEventRecorder(eventrecorder.Component(name)), here: w.here}
	c.kinds = &kinds{live: w.deps.Live, cache: mgr.GetCache(), open: w.spaces(mgr, steps), spaces: map[string]cache.Cache{}, followed: map[place]bool{}}
	if err := w.control(mgr, c); err != nil {
		return nil, fmt.Errorf("adding the controllers: %w", err)
	}
	return mgr, nil
}

// spaces opens the caches of single namespaces, which the manager runs.
func (w *Watch) spaces(mgr ctrl.Manager, o cache.Options) func(namespace string) (cache.Cache, error) {
	o.Mapper, o.HTTPClient = mgr.GetRESTMapper(), mgr.GetHTTPClient()
	return func(namespace string) (cache.Cache, error) {
		o := o
		o.DefaultNamespaces = map[string]cache.Config{namespace: {}}
		made, err := cache.New(w.config, o)
		if err != nil {
			return nil, err
		}
		return made, mgr.Add(made)
	}
}

// control adds the controllers of the three kinds.
func (w *Watch) control(mgr ctrl.Manager, c *Controller) (err error) {
	if c.kinds.watcher, err = w.builder(mgr, name).For(&v1alpha1.RepairRun{}, givenUp()).Build(c); err != nil {
		return err
	}
	if err = w.builder(mgr, name+"-templates").For(&v1alpha1.RepairTemplate{}, changed()).Complete(templateController{c}); err != nil {
		return err
	}
	return w.builder(mgr, name+"-chains").For(&v1alpha1.RepairChain{}, changed()).
		Watches(&v1alpha1.RepairTemplate{}, handler.EnqueueRequestsFromMapFunc(c.chainsOf), changed()).Complete(chainController{c})
}

func changed() builder.Predicates {
	return builder.WithPredicates(predicate.GenerationChangedPredicate{})
}

// givenUp also rings when a NodeHealthCheck writes on its run.
func givenUp() builder.Predicates {
	return builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))
}

func (w *Watch) builder(mgr ctrl.Manager, name string) *builder.Builder {
	unchecked := true
	return ctrl.NewControllerManagedBy(mgr).Named(name).WithOptions(controller.Options{
		MaxConcurrentReconciles: lanes,
		CacheSyncTimeout:        syncLimit,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		SkipNameValidation:      &unchecked, // names are unique only for metrics that we do not serve
	})
}

// chainsOf are the chains that name a template.
func (c *Controller) chainsOf(ctx context.Context, t client.Object) []reconcile.Request {
	list := &v1alpha1.RepairChainList{}
	if err := c.kinds.cache.List(ctx, list); err != nil {
		c.Log.Warn("listing the chains failed; what they say of a template is behind until they change", "template", t.GetName(), "error", err)
		return nil
	}
	var out []reconcile.Request
	for _, definition := range list.Items {
		for _, s := range definition.Spec.Steps {
			if s.Template == t.GetName() {
				out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&definition)})
				break
			}
		}
	}
	return out
}
