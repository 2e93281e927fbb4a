// Package controller runs the controllers of a service that has kinds of its own. It
// is the frame around controller-runtime, which does the work: the service waits, not
// ready and reporting why, until the API server serves its kinds, and its metrics are the
// daemon's.
package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nvidia/nvsentinel/internal/kube"
)

const (
	// poll is how often a missing kind, or an API server that is away, is looked for.
	poll = 2 * time.Second
	// syncLimit is how long the caches may take to be filled: an API server that is
	// away by then is waited for, not given up.
	syncLimit = 24 * time.Hour
)

// Live is a client that reads and writes objects of the added kinds, and of those of
// Kubernetes, at the API server itself. An update keeps what an object has that this
// version's types do not know; see keeping.
func Live(config *rest.Config, add ...func(*runtime.Scheme) error) (client.Client, error) {
	s, err := scheme(add)
	if err != nil {
		return nil, err
	}
	live, err := client.New(config, client.Options{Scheme: s})
	if err != nil {
		return nil, fmt.Errorf("creating the client of objects: %w", err)
	}
	return keeping{live}, nil
}

func scheme(add []func(*runtime.Scheme) error) (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range append(add, clientgoscheme.AddToScheme) {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("registering the kinds: %w", err)
		}
	}
	return s, nil
}

// Unserved is why the objects of a kind can not be read; empty when they can.
func Unserved(ctx context.Context, live client.Reader, kinds map[string]client.ObjectList) string {
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		switch err := live.List(ctx, kinds[kind], client.Limit(1)); {
		case meta.IsNoMatchError(err):
			return kind + " is not served by the API server"
		case err != nil:
			return kind + " objects cannot be read: " + err.Error()
		}
	}
	return ""
}

// Manager makes a manager, which asks the API server what it serves. One that is not
// started can be dropped.
func Manager(config *rest.Config, caches cache.Options, log *slog.Logger, add ...func(*runtime.Scheme) error) (ctrl.Manager, error) {
	s, err := scheme(add)
	if err != nil {
		return nil, err
	}
	caches.DefaultTransform = kube.Strip
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: s, Logger: logr.FromSlogHandler(log.Handler()), Cache: caches,
		Metrics: server.Options{BindAddress: "0"}, // the daemon serves ours
	})
	if err != nil {
		return nil, fmt.Errorf("creating the manager: %w", err)
	}
	return mgr, nil
}

// Fill has the manager's cache filled with all objects of a kind from its start, so that
// a Watch is not synced before it is: the informers of controllers open some time later.
func Fill(ctx context.Context, mgr ctrl.Manager, kinds ...client.Object) error {
	for _, kind := range kinds {
		if _, err := mgr.GetCache().GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("creating the cache of %T: %w", kind, err)
		}
	}
	return nil
}

// Options of a controller.
type Options = controller.Options

// NewOptions are those of a controller that works on so many objects at once, and comes
// back to one whose pass failed after first, and after up to last if it fails again and
// again.
func NewOptions(workers int, first, last time.Duration) Options {
	unchecked := true
	return Options{
		MaxConcurrentReconciles: workers,
		CacheSyncTimeout:        syncLimit,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](first, last),
		SkipNameValidation:      &unchecked, // names are unique only for metrics that we do not serve
	}
}

// errFatal marks an error that waiting does not fix.
var errFatal = errors.New("unrecoverable error")

// Fatal is an error of a Watch's Manager that ends the watch, and with it the process.
func Fatal(err error) error { return fmt.Errorf("%w: %w", errFatal, err) }

// Watch runs controllers once their objects can be watched.
type Watch struct {
	// Objects names them in words: "repair objects".
	Objects string
	// Unserved is why they can not be read; empty when they can.
	Unserved func(ctx context.Context) string
	// Manager prepares a manager with the controllers, and has Fill open the caches that
	// they need. It is asked again until it succeeds, or is Fatal.
	Manager func(ctx context.Context) (ctrl.Manager, error)
	// Refusals are the watches that the API server refuses; nil counts none. Manager has
	// the caches report to it.
	Refusals *Refusals
	Log      *slog.Logger

	running, synced atomic.Bool
	missing         atomic.Value // why the objects can not be watched; empty when they can
}

// Synced reports whether a running watch has its caches.
func (w *Watch) Synced() (bool, string) {
	if why, _ := w.missing.Load().(string); why != "" {
		return false, why
	}
	if w.running.Load() && !w.synced.Load() {
		return false, "the caches of " + w.Objects + " are not synced yet"
	}
	if why := w.Refusals.Why(); why != "" {
		return false, why
	}
	return true, "synced"
}

// Run runs the controllers until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	w.running.Store(true)
	ctrl.SetLogger(logr.FromSlogHandler(w.Log.Handler())) // controller-runtime complains on stderr without one
	mgr, err := w.await(ctx)
	if mgr == nil || err != nil {
		return err
	}
	go func() { w.synced.Store(mgr.GetCache().WaitForCacheSync(ctx)) }()
	return mgr.Start(ctx)
}

// await waits until the API server serves the kinds and they can be watched: a service
// that starts before their definition is there, or while the API server is away, is not
// ready and reports why, and begins when it can. The manager is nil when ctx ended before.
func (w *Watch) await(ctx context.Context) (mgr ctrl.Manager, err error) {
	err = wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		why := w.Unserved(ctx)
		if why == "" {
			var err error
			if mgr, err = w.Manager(ctx); errors.Is(err, errFatal) {
				return false, err
			} else if err != nil {
				why = w.Objects + " cannot be watched: " + err.Error()
			}
		}
		if before, _ := w.missing.Swap(why).(string); before != why {
			w.Log.Info("prerequisites checked for "+w.Objects, "missing", why)
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
