package reconciler

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	healthevent "github.com/nvidia/nvsentinel/api/healthevent/v1alpha1"
	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/controller"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
)

const (
	// name of the controller and of the reporter of its Events.
	name = "node-health-check"
	// firstRetry and lastRetry of a check whose pass failed.
	firstRetry = 500 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Live is a client that reads and writes at the API server itself.
func Live(config *rest.Config) (client.Client, error) {
	return controller.Live(config, v1alpha1.AddToScheme, healthevent.AddToScheme)
}

// Watch runs the reconciler, and enqueues for it: what a decision depends on makes a pass.
// It ends with an error if another program looks after NodeHealthChecks.
type Watch struct {
	*controller.Watch
	deps   Deps
	config *rest.Config
	// prepared receives the controller before it starts; tests set it.
	prepared func(*Reconciler)
}

// New makes a watch.
func New(config *rest.Config, d Deps) *Watch {
	w := &Watch{deps: d, config: config}
	refusals := controller.NewRefusals(d.Clock, rawCheck(), &corev1.Node{}, &coordinationv1.Lease{})
	w.Watch = &controller.Watch{Objects: "nodes and checks", Log: d.Log, Refusals: refusals, Manager: w.manager, Unserved: func(ctx context.Context) string {
		return controller.Unserved(ctx, d.Live, map[string]client.ObjectList{"NodeHealthCheck": rawChecks()})
	}}
	return w
}

// manager prepares the watches, unless there is another operator.
func (w *Watch) manager(ctx context.Context) (ctrl.Manager, error) {
	other, err := rival(ctx, w.deps.Claims.Client, w.deps.Clock.Now())
	if other != "" {
		return nil, controller.Fatal(fmt.Errorf("another operator of NodeHealthChecks runs in this cluster, remove it first: %s", other))
	}
	if err != nil {
		return nil, err
	}
	mgr, err := controller.Manager(w.config, cache.Options{DefaultWatchErrorHandler: w.Refusals.Handle, ByObject: map[client.Object]cache.ByObject{
		&corev1.Node{}:          {Transform: slim},
		&coordinationv1.Lease{}: {Namespaces: map[string]cache.Config{w.deps.Claims.Namespace: {}}},
	}}, w.deps.Log, v1alpha1.AddToScheme, healthevent.AddToScheme)
	if err != nil {
		return nil, err
	}
	k := &kinds{mapper: mgr.GetRESTMapper(), live: w.deps.Live, cache: mgr.GetCache(), followed: map[schema.GroupVersionKind]bool{}}
	cached := &apart{Reader: mgr.GetCache()}
	c := newController(w.deps, cached, k, mgr.GetEventRecorder(eventrecorder.Component(name)))
	m := &mapper{checks: cached, log: w.deps.Log}
	k.templates, k.remediations = m.ofTemplates(), m.ofRemediations()
	if w.prepared != nil {
		w.prepared(c)
	}
	k.watcher, err = ctrl.NewControllerManagedBy(mgr).Named(name).
		For(rawCheck(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, m.ofNodes(), builder.WithPredicates(predicate.Funcs{UpdateFunc: nodeChanged})).
		Watches(&coordinationv1.Lease{}, m.ofLeases()).
		WithOptions(controller.NewOptions(passes, firstRetry, lastRetry)).Build(c)
	if err != nil {
		return nil, fmt.Errorf("adding the controller: %w", err)
	}
	if w.deps.Beside != nil {
		if err := w.deps.Beside(mgr); err != nil {
			return nil, err
		}
	}
	return mgr, controller.Fill(ctx, mgr, rawCheck(), &corev1.Node{}, &coordinationv1.Lease{})
}
