package kube

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
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

// AwaitStop waits for informers that were told to stop, but not for long: one
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

// Synced says whether the cache has been filled once.
func (n *Nodes) Synced() (bool, string) {
	if n.informer.HasSynced() {
		return true, "synced"
	}
	return false, "the node cache is not filled yet"
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
		return errors.Join(errors.New("filling the node cache"), ctx.Err())
	}
	return nil
}

// Source returns a source of consume.Loop that enqueues a Node's name whenever
// relevant says that its change matters; before is nil for a new Node, after
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
