package reconciler

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/controller"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/repair-chain/chain"
)

const (
	// name of the controller and of the reporter of its Events.
	name = "repair-chain"
	// firstRetry and lastRetry of an object whose pass failed.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 15 * time.Second
	// workers is how many runs are taken on at once.
	workers = 16
)

// Live is a client that reads and writes at the API server itself.
func Live(config *rest.Config) (client.Client, error) {
	return controller.Live(config, v1alpha1.AddToScheme)
}

// Watch runs the reconciler, and enqueues for it.
type Watch struct {
	*controller.Watch
	deps   Deps
	config *rest.Config
	// here marks the places where a test may end the process.
	here func(point string)
}

// New makes a watch.
func New(config *rest.Config, d Deps) *Watch {
	w := &Watch{deps: d, config: config, here: crashpoint.Here}
	refusals := controller.NewRefusals(d.Clock, &v1alpha1.RepairRun{}, &v1alpha1.RepairChain{}, &v1alpha1.RepairTemplate{})
	w.Watch = &controller.Watch{Objects: "runs, chains and templates", Log: d.Log, Refusals: refusals, Manager: w.manager, Unserved: func(ctx context.Context) string {
		return controller.Unserved(ctx, d.Live, map[string]client.ObjectList{
			v1alpha1.RunKind: &v1alpha1.RepairRunList{}, v1alpha1.ChainKind: &v1alpha1.RepairChainList{}, v1alpha1.TemplateKind: &v1alpha1.RepairTemplateList{},
		})
	}}
	return w
}

// manager prepares the watches: of the objects of steps only those that name a run.
func (w *Watch) manager(ctx context.Context) (ctrl.Manager, error) {
	ofRuns, err := labels.NewRequirement(chain.RunLabel, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("creating the selector of step objects: %w", err)
	}
	all := cache.ByObject{Label: labels.Everything()}
	steps := cache.Options{DefaultTransform: kube.Strip, DefaultLabelSelector: labels.NewSelector().Add(*ofRuns)}
	main := steps
	main.DefaultWatchErrorHandler = w.Refusals.Handle
	main.ByObject = map[client.Object]cache.ByObject{&v1alpha1.RepairRun{}: all, &v1alpha1.RepairChain{}: all, &v1alpha1.RepairTemplate{}: all}
	mgr, err := controller.Manager(w.config, main, w.deps.Log, v1alpha1.AddToScheme)
	if err != nil {
		return nil, err
	}
	c := &Reconciler{Deps: w.deps, events: mgr.GetEventRecorder(eventrecorder.Component(name)), here: w.here}
	c.kinds = &kinds{live: w.deps.Live, cache: mgr.GetCache(), open: w.spaces(mgr, steps), spaces: map[string]cache.Cache{}, followed: map[scope]bool{}}
	if err := w.control(mgr, c); err != nil {
		return nil, fmt.Errorf("adding the controllers: %w", err)
	}
	return mgr, controller.Fill(ctx, mgr, &v1alpha1.RepairRun{}, &v1alpha1.RepairChain{}, &v1alpha1.RepairTemplate{})
}

// spaces opens the caches of single namespaces, which the manager runs.
func (w *Watch) spaces(mgr ctrl.Manager, o cache.Options) func(namespace string) (cache.Cache, error) {
	o.Scheme, o.Mapper, o.HTTPClient = mgr.GetScheme(), mgr.GetRESTMapper(), mgr.GetHTTPClient()
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
func (w *Watch) control(mgr ctrl.Manager, c *Reconciler) (err error) {
	if c.kinds.watcher, err = w.builder(mgr, name).For(&v1alpha1.RepairRun{}, abandonedPredicate()).Build(c); err != nil {
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

// abandonedPredicate also lets through what a NodeHealthCheck writes on its run.
func abandonedPredicate() builder.Predicates {
	return builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))
}

func (w *Watch) builder(mgr ctrl.Manager, name string) *builder.Builder {
	return ctrl.NewControllerManagedBy(mgr).Named(name).WithOptions(controller.NewOptions(workers, firstRetry, lastRetry))
}

// chainsOf are the chains that name a template.
func (c *Reconciler) chainsOf(ctx context.Context, t client.Object) []reconcile.Request {
	list := &v1alpha1.RepairChainList{}
	if err := c.kinds.cache.List(ctx, list); err != nil {
		c.Log.Warn("chains not listed, their status about the template is outdated until they change", "template", t.GetName(), "error", err)
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
