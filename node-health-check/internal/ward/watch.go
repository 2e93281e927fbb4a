package ward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/kube"
	healthevent "github.com/nvidia/nvsentinel/node-health-check/api/healthevent/v1alpha1"
	"github.com/nvidia/nvsentinel/node-health-check/api/v1alpha1"
)

const (
	// name of the controller and of the reporter of its Events.
	name = "node-health-check"
	// kindPoll is how often a missing kind, or an API server that is away, is
	// looked for.
	kindPoll = 2 * time.Second
	// syncLimit is how long the caches may take to be filled: an API server that is
	// away by then is waited for, not given up.
	syncLimit = 24 * time.Hour
	// firstRetry and lastRetry of a check whose pass failed.
	firstRetry = 500 * time.Millisecond
	lastRetry  = 30 * time.Second
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

// scheme knows NodeHealthChecks, HealthEventRemediations and the kinds of Kubernetes.
func scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s), healthevent.AddToScheme(s)); err != nil {
		return nil, fmt.Errorf("registering the kinds: %w", err)
	}
	return s, nil
}

// Ward rings for the controller: what a decision depends on makes a pass.
type Ward struct {
	deps   Deps
	config *rest.Config
	log    *slog.Logger

	running, synced atomic.Bool
	// missing is why checks can not be read; empty when they can.
	missing atomic.Value
	// prepared is told the controller before it starts; tests set it.
	prepared func(*Controller)
}

// New makes a ward.
func New(config *rest.Config, d Deps) *Ward { return &Ward{deps: d, config: config, log: d.Log} }

// Synced says whether a running ward has its caches.
func (w *Ward) Synced() (bool, string) {
	if why, _ := w.missing.Load().(string); why != "" {
		return false, why
	}
	if w.running.Load() && !w.synced.Load() {
		return false, "the caches of nodes and checks are not filled yet"
	}
	return true, "synced"
}

// Run looks after the nodes until ctx ends. It is an error if another program does.
func (w *Ward) Run(ctx context.Context) error {
	w.running.Store(true)
	s, err := scheme()
	if err != nil {
		return err
	}
	ctrl.SetLogger(logr.FromSlogHandler(w.log.Handler())) // controller-runtime complains on stderr without one
	mgr, err := w.await(ctx, s)
	if mgr == nil || err != nil {
		return err
	}
	go func() { w.synced.Store(mgr.GetCache().WaitForCacheSync(ctx)) }()
	return mgr.Start(ctx)
}

// await waits until checks can be read and watched, and is ready meanwhile to say
// what is missing. The manager is nil when ctx ended before, or with an error.
func (w *Ward) await(ctx context.Context, s *runtime.Scheme) (mgr ctrl.Manager, err error) {
	err = wait.PollUntilContextCancel(ctx, kindPoll, true, func(ctx context.Context) (bool, error) {
		why := w.unserved(ctx)
		if why == "" {
			other, err := rival(ctx, w.deps.Claims.Client, w.deps.Clock.Now())
			if other != "" {
				return false, fmt.Errorf("another operator of NodeHealthChecks runs in this cluster, remove it first: %s", other)
			}
			if err == nil {
				mgr, err = w.manager(s)
			}
			if err != nil {
				why = "checks can not be watched: " + err.Error()
			}
		}
		if before, _ := w.missing.Swap(why).(string); before != why {
			w.log.Info("looking for checks", "missing", why)
		}
		return why == "", nil
	})
	select {
	case <-ctx.Done():
		return nil, nil
	default:
		return mgr, err
	}
}

// unserved is why checks can not be read; empty when they can.
func (w *Ward) unserved(ctx context.Context) string {
	switch err := w.deps.Live.List(ctx, &v1alpha1.NodeHealthCheckList{}, client.Limit(1)); {
	case meta.IsNoMatchError(err):
		return "NodeHealthCheck is not served by the API server"
	case err != nil:
		return "NodeHealthChecks can not be read: " + err.Error()
	}
	return ""
}

// manager prepares the watches. One whose preparation failed was never started and is
// dropped.
func (w *Ward) manager(s *runtime.Scheme) (ctrl.Manager, error) {
	mgr, err := ctrl.NewManager(w.config, ctrl.Options{
		Scheme: s, Logger: logr.FromSlogHandler(w.log.Handler()),
		Metrics: server.Options{BindAddress: "0"}, // the daemon serves ours
		Cache: cache.Options{
			DefaultTransform: kube.StripManagedFields,
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Node{}:          {Transform: slim},
				&coordinationv1.Lease{}: {Namespaces: map[string]cache.Config{w.deps.Claims.Namespace: {}}},
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	k := &kinds{mapper: mgr.GetRESTMapper(), live: w.deps.Live, cache: mgr.GetCache(), followed: map[schema.GroupVersionKind]bool{}}
	c := newController(w.deps, mgr.GetCache(), k, mgr.GetEventRecorder(eventrecorder.Component(name)))
	bells := &bells{checks: mgr.GetCache(), log: w.log}
	k.templates, k.remediations = bells.ofTemplates(), bells.ofRemediations()
	if w.prepared != nil {
		w.prepared(c)
	}
	unchecked := true
	k.watcher, err = ctrl.NewControllerManagedBy(mgr).Named(name).
		For(&v1alpha1.NodeHealthCheck{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, bells.ofNodes(), builder.WithPredicates(predicate.Funcs{UpdateFunc: nodeChanged})).
		Watches(&coordinationv1.Lease{}, noBell()).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: passes,
			CacheSyncTimeout:        syncLimit,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
			// Names are unique per process only for metrics that we do not serve.
			SkipNameValidation: &unchecked,
		}).Build(c)
	if err != nil {
		return nil, fmt.Errorf("adding the controller: %w", err)
	}
	if w.deps.Beside != nil {
		if err := w.deps.Beside(mgr); err != nil {
			return nil, err
		}
	}
	return mgr, nil
}
