package reconciler

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/controller"
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
	return controller.Live(config, v1alpha1.AddToScheme)
}

// Decodable is a config whose clients leave out of lists and watches the repair objects
// that cannot be decoded.
func Decodable(config *rest.Config, skips *controller.Skips) (*rest.Config, error) {
	return controller.Skipping(config, skips, v1alpha1.AddToScheme)
}

// Member is what a watch enqueues for: the controller of one kind.
type Member interface {
	// Unserved is why its objects can not be read; empty when they can.
	Unserved(ctx context.Context) string
	// Caches bound what it watches of kinds that are not the janitor's.
	Caches() map[client.Object]cache.ByObject
	// Register adds it to a manager.
	Register(ctx context.Context, mgr ctrl.Manager, options controller.Options) error
}

// NewWatch makes the watch that enqueues for the controllers: an object's changes
// enqueue, and so do those changes of its Node that a decision depends on. Workers is how
// many objects of a kind are worked on at once.
func NewWatch(config *rest.Config, workers int, now clock.PassiveClock, log *slog.Logger, members ...Member) *controller.Watch {
	watched := []client.Object{&corev1.Node{}, &v1alpha1.RebootNode{}, &v1alpha1.TerminateNode{}, &v1alpha1.GPUReset{}}
	for _, m := range members {
		watched = slices.AppendSeq(watched, maps.Keys(m.Caches()))
	}
	refusals := controller.NewRefusals(now, watched...)
	return &controller.Watch{
		Objects: "maintenance objects", Log: log, Refusals: refusals,
		Unserved: func(ctx context.Context) string { return unserved(ctx, members) },
		Manager: func(ctx context.Context) (ctrl.Manager, error) {
			caches := map[client.Object]cache.ByObject{}
			for _, m := range members {
				maps.Copy(caches, m.Caches())
			}
			mgr, err := controller.Manager(config, cache.Options{DefaultWatchErrorHandler: refusals.Handle, ByObject: caches}, log, v1alpha1.AddToScheme)
			for _, m := range members {
				if err == nil {
					err = m.Register(ctx, mgr, controller.NewOptions(workers, firstRetry, lastRetry))
				}
			}
			if err == nil { // the members' indexes open the caches of their own kinds
				err = controller.Fill(ctx, mgr, &corev1.Node{})
			}
			return mgr, err
		},
	}
}

func unserved(ctx context.Context, members []Member) string {
	for _, m := range members {
		if why := m.Unserved(ctx); why != "" {
			return why
		}
	}
	return ""
}

// Unserved is why the objects of the kind can not be read; empty when they can.
func (f *Frame[O, F]) Unserved(ctx context.Context) string {
	return controller.Unserved(ctx, f.Objects, map[string]client.ObjectList{f.Name: f.List()})
}

// Caches are none: the controller watches Nodes, and of them all.
func (f *Frame[O, F]) Caches() map[client.Object]cache.ByObject { return nil }

// Register adds the controller to a manager.
func (f *Frame[O, F]) Register(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, f.Object(), byNode, f.nodeOfOpen); err != nil {
		return fmt.Errorf("indexing objects by node: %w", err)
	}
	ofNode := func(nodeOf func(client.Object) string) handler.EventHandler {
		return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return f.objectsOf(ctx, mgr.GetClient(), nodeOf(o))
		})
	}
	b := ctrl.NewControllerManagedBy(mgr).Named(strings.ToLower(f.Name)).
		For(f.Object(), builder.WithPredicates(predicate.Funcs{UpdateFunc: f.byOthers})).
		Watches(&corev1.Node{}, ofNode(client.Object.GetName), builder.WithPredicates(predicate.Funcs{UpdateFunc: f.relevant})).
		WithOptions(options)
	if f.Watch != nil {
		f.Watch(b, ofNode)
	}
	if err := b.Complete(f); err != nil {
		return fmt.Errorf("adding the controller of %s: %w", f.Name, err)
	}
	return controller.Fill(ctx, mgr, f.Besides...)
}

// nodeOfOpen is the index of open objects by their node.
func (f *Frame[O, F]) nodeOfOpen(o client.Object) []string {
	object, ok := o.(O)
	if !ok || f.Completed(object) {
		return nil
	}
	return []string{f.NodeOf(object)}
}

// objectsOf lists the open objects of a Node.
func (f *Frame[O, F]) objectsOf(ctx context.Context, cached client.Reader, node string) []reconcile.Request {
	if node == "" {
		return nil
	}
	list := f.List()
	var out []reconcile.Request
	err := cached.List(ctx, list, client.MatchingFields{byNode: node})
	if err == nil {
		err = meta.EachListItem(list, func(o runtime.Object) error {
			if object, ok := o.(client.Object); ok {
				out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)})
			}
			return nil
		})
	}
	if err != nil {
		f.Log.Warn("objects of the node not listed, polling them", "node", node, "error", err)
	}
	return out
}

// byOthers drops an object's changes that are the janitor's own: of its status and of its
// finalizer.
func (f *Frame[O, F]) byOthers(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(O)
	after, ok2 := e.ObjectNew.(O)
	return !ok || !ok2 || before.GetGeneration() != after.GetGeneration() || f.Changed(before, after)
}

// relevant drops a Node's changes that no decision depends on.
func (f *Frame[O, F]) relevant(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.Node)
	after, ok2 := e.ObjectNew.(*corev1.Node)
	return !ok || !ok2 || !reflect.DeepEqual(f.NodeFacts(before), f.NodeFacts(after))
}
