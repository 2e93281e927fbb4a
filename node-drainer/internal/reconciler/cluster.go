package reconciler

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listpolicy "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nvidia/nvsentinel/internal/kube"
)

// byNode indexes pods by the node they are bound to.
const byNode = "spec.nodeName"

// The newest writes of our own that the watch may be behind: so many, for so long. A
// write that is forgotten costs a lost race.
const (
	ownWrites     = 1024
	ownWriteLasts = time.Minute
)

// Cluster is the watched part of the cluster: its Nodes, Pods and disruption
// budgets.
type Cluster struct {
	client  kubernetes.Interface
	factory informers.SharedInformerFactory
	running atomic.Bool

	nodes   cache.MutationCache // shows our own write before the watch does
	pods    cache.Indexer
	budgets listpolicy.PodDisruptionBudgetLister

	nodeInformer, podInformer, budgetInformer cache.SharedIndexInformer
}

// NewCluster prepares the watches; Run starts them.
func NewCluster(client kubernetes.Interface) (*Cluster, error) {
	f := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(trim))
	c := &Cluster{
		client: client, factory: f,
		budgets:        f.Policy().V1().PodDisruptionBudgets().Lister(),
		nodeInformer:   f.Core().V1().Nodes().Informer(),
		podInformer:    f.Core().V1().Pods().Informer(),
		budgetInformer: f.Policy().V1().PodDisruptionBudgets().Informer(),
	}
	if err := c.podInformer.AddIndexers(cache.Indexers{byNode: nodeOfPod}); err != nil {
		return nil, fmt.Errorf("indexing pods by node: %w", err)
	}
	c.pods = c.podInformer.GetIndexer()
	c.nodes = cache.NewIntegerResourceVersionMutationCacheWithOptions(klog.Background(), c.nodeInformer.GetStore(),
		cache.MutationCacheOptions{MaxCacheSize: ownWrites, TTL: ownWriteLasts})
	return c, nil
}

// trim keeps of each object what drains look at, since a cluster's pods are
// many and large. One that is packed already stays as it is.
func trim(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Pod:
		return pack(o)
	case *corev1.Node:
		return kube.StripToMarks(o)
	case *policyv1.PodDisruptionBudget:
		o.ManagedFields = nil
	}
	return obj, nil
}

// Run watches until ctx ends.
func (c *Cluster) Run(ctx context.Context) error {
	c.running.Store(true)
	c.factory.StartWithContext(ctx)
	<-ctx.Done()
	kube.AwaitStop(c.factory.Shutdown)
	return nil
}

// Ready is Synced while the watches run; before, the process stands by and needs none.
func (c *Cluster) Ready() (ok bool, detail string) {
	if !c.running.Load() {
		return true, "standing by"
	}
	return c.Synced()
}

// Synced reports whether the caches have been filled once, and which has not.
func (c *Cluster) Synced() (ok bool, detail string) {
	for name, i := range map[string]cache.SharedIndexInformer{
		"nodes": c.nodeInformer, "pods": c.podInformer, "disruption budgets": c.budgetInformer,
	} {
		if !i.HasSynced() {
			return false, "cache of " + name + " is not synced"
		}
	}
	return true, ""
}

// WaitForSync blocks until the caches are filled or ctx ends.
func (c *Cluster) WaitForSync(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), c.nodeInformer.HasSynced, c.podInformer.HasSynced, c.budgetInformer.HasSynced) {
		return fmt.Errorf("waiting for the caches: %w", context.Cause(ctx))
	}
	return nil
}
