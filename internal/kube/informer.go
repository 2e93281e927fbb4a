package kube

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// Nodes is a cache of all Node objects.
type Nodes struct {
	Lister   listers.NodeLister
	informer cache.SharedIndexInformer
	factory  informers.SharedInformerFactory
	running  atomic.Bool
}

// WatchNodes makes a cache of Nodes as strip, Strip or StripToMarks, leaves them; Run
// fills it.
func WatchNodes(client kubernetes.Interface, strip cache.TransformFunc) *Nodes {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(strip))
	nodes := factory.Core().V1().Nodes()
	return &Nodes{Lister: nodes.Lister(), informer: nodes.Informer(), factory: factory}
}

// Cached is the Node as the cache has it; nil where it has none, which proves no absence.
// It is not to be changed.
func (n *Nodes) Cached(name string) *corev1.Node {
	node, err := n.Lister.Get(name)
	if err != nil {
		return nil
	}
	return node
}

// Run keeps the cache until ctx ends.
func (n *Nodes) Run(ctx context.Context) error {
	n.running.Store(true)
	n.factory.Start(ctx.Done())
	<-ctx.Done()
	AwaitStop(n.factory.Shutdown)
	return nil
}

// stopGrace is how long informers get to stop.
const stopGrace = time.Second

// AwaitStop waits for informers that were asked to stop, but not for long: one
// that backs off from an API server that is away sleeps up to a minute without
// looking at its context (watchList of client-go v0.37.2), and would hold up the
// end of the process. wait returns when all have stopped.
func AwaitStop(wait func()) {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		wait()
	}()
	select {
	case <-stopped:
	case <-clock.RealClock{}.After(stopGrace):
	}
}

// Synced reports whether the cache has been filled once.
func (n *Nodes) Synced() (bool, string) {
	if n.informer.HasSynced() {
		return true, "synced"
	}
	return false, "the node cache is not synced yet"
}

// Ready is Synced while the cache runs; before, the process stands by and needs none.
func (n *Nodes) Ready() (bool, string) {
	if !n.running.Load() {
		return true, "standing by"
	}
	return n.Synced()
}

// WaitForSync blocks until the cache is filled or ctx ends.
func (n *Nodes) WaitForSync(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), n.informer.HasSynced) {
		return errors.Join(errors.New("syncing the node cache"), ctx.Err())
	}
	return nil
}

// Source returns a source of consume.Loop that enqueues a Node's name whenever
// relevant reports whether its change matters; before is nil for a new Node, after
// is nil for a deleted one.
func (n *Nodes) Source(relevant func(before, after *corev1.Node) bool) func(ctx context.Context, enqueue func(string)) error {
	return func(ctx context.Context, enqueue func(string)) error {
		notify := func(before, after *corev1.Node) {
			if relevant(before, after) {
				name := after
				if name == nil {
					name = before
				}
				enqueue(name.Name)
			}
		}
		handle, err := n.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(x any) { notify(nil, nodeOf(x)) },
			UpdateFunc: func(x, y any) { notify(nodeOf(x), nodeOf(y)) },
			DeleteFunc: func(x any) { notify(nodeOf(x), nil) },
		})
		if err != nil {
			return err
		}
		<-ctx.Done()
		return n.informer.RemoveEventHandler(handle)
	}
}

func nodeOf(x any) *corev1.Node {
	if gone, ok := x.(cache.DeletedFinalStateUnknown); ok {
		x = gone.Obj
	}
	node, ok := x.(*corev1.Node)
	if !ok {
		return &corev1.Node{}
	}
	return node
}

// Strip is the transform of a cache that any label or annotation may be read from: it
// drops who wrote which field of an object, and of a Node the status that no service
// reads, which is most of it. Conditions and the machine's identity stay.
func Strip(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	if node, ok := object.(*corev1.Node); ok {
		node.Status = corev1.NodeStatus{
			Conditions: node.Status.Conditions,
			NodeInfo:   corev1.NodeSystemInfo{SystemUUID: node.Status.NodeInfo.SystemUUID, BootID: node.Status.NodeInfo.BootID},
		}
	}
	return object, nil
}

// StripToMarks is the transform of a cache of Nodes from which nothing is read but our
// own marks, and what Strip leaves beside labels and annotations.
func StripToMarks(object any) (any, error) {
	if node, ok := object.(*corev1.Node); ok {
		node.Labels, node.Annotations = projectKeys(node.Labels), projectKeys(node.Annotations)
		node.Spec.PodCIDRs = nil
	}
	return Strip(object)
}

// projectKeys are the entries whose keys are below nvidia.com, as those of nodemark are, or in
// no domain, as those that fault-quarantine's annotations have kept from their beginning.
// One of the others stays where there is none: PatchNode adds to a map that is there, and
// would make one that is not.
func projectKeys(all map[string]string) map[string]string {
	if len(all) == 0 {
		return nil
	}
	out := map[string]string{}
	for key, value := range all {
		if domain, _, has := strings.Cut(key, "/"); !has || strings.HasSuffix(domain, ".nvidia.com") {
			out[key] = value
		}
	}
	if len(out) == 0 {
		least := slices.Min(slices.Collect(maps.Keys(all)))
		out[least] = all[least]
	}
	return out
}

// Packed is an object as a large cache keeps it: what a cache asks of it, and the rest as
// bytes, which are decoded when they are needed. A decoded object takes several times
// their memory, in maps and strings of its own, and most objects of a cache are never
// looked at. A transform of an informer makes it.
type Packed struct {
	Namespace, Name string
	// Version is the object's resource version: an informer reports no change without one.
	Version string
	// Node is the node that a pod is bound to, for an index; empty for other objects.
	Node string
	Raw  []byte
}

// GetObjectMeta is what meta.Accessor finds: namespace, name and resource version.
func (p *Packed) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, ResourceVersion: p.Version}
}
