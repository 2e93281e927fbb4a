package reconciler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listpolicy "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nvidia/nvsentinel/internal/eviction"
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

func nodeOfPod(obj any) ([]string, error) {
	if pod, ok := obj.(*kube.Packed); ok && pod.Node != "" {
		return []string{pod.Node}, nil
	}
	return nil, nil
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

// Synced says whether the caches have been filled once, and which has not.
func (c *Cluster) Synced() (ok bool, detail string) {
	for name, i := range map[string]cache.SharedIndexInformer{
		"nodes": c.nodeInformer, "pods": c.podInformer, "disruption budgets": c.budgetInformer,
	} {
		if !i.HasSynced() {
			return false, "cache of " + name + " is not filled"
		}
	}
	return true, ""
}

// Node is the cached Node, or what we wrote of it since; nil when there is none.
func (c *Cluster) Node(name string) (*corev1.Node, error) {
	o, _, err := c.nodes.GetByKey(name)
	if err != nil {
		return nil, fmt.Errorf("reading node %s from the cache: %w", name, err)
	}
	n, _ := o.(*corev1.Node)
	return n, nil
}

// wrote tells of a Node as our own write left it.
func (c *Cluster) wrote(n *corev1.Node) { c.nodes.Mutation(n) }

// Pods are the facts of the cached pods bound to a node, by namespace and name, without
// those that stay on it anyway.
func (c *Cluster) Pods(node string) ([]*corev1.Pod, error) {
	objects, err := c.pods.ByIndex(byNode, node)
	if err != nil {
		return nil, fmt.Errorf("listing pods of node %s from the cache: %w", node, err)
	}
	pods := make([]*corev1.Pod, 0, len(objects))
	for _, o := range objects {
		packed, ok := o.(*kube.Packed)
		if !ok {
			continue
		}
		pod, err := unpack(packed)
		if err != nil {
			return nil, err
		}
		pods = append(pods, pod)
	}
	sortPods(pods)
	return pods, nil
}

// LiveNode is the Node as the API server has it; nil when it is sure that
// there is none.
func (c *Cluster) LiveNode(ctx context.Context, name string) (*corev1.Node, error) {
	n, err := kube.ReadNode(ctx, c.client, name)
	if errors.Is(err, kube.ErrGone) {
		return nil, nil
	}
	return n, err
}

// LivePods are the pods bound to a node as the API server has them.
func (c *Cluster) LivePods(ctx context.Context, node string) ([]*corev1.Pod, error) {
	list, err := c.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: byNode + "=" + node})
	if err != nil {
		return nil, fmt.Errorf("listing pods of node %s: %w", node, err)
	}
	pods := make([]*corev1.Pod, 0, len(list.Items))
	for i := range list.Items {
		pods = append(pods, eviction.Facts(&list.Items[i]))
	}
	sortPods(pods)
	return pods, nil
}

func sortPods(pods []*corev1.Pod) {
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
}

// budget is one disruption budget as it was seen.
type budget struct {
	name    string // namespace/name
	version string
	allows  bool
}

func seen(pdb *policyv1.PodDisruptionBudget) budget {
	return budget{name: pdb.Namespace + "/" + pdb.Name, version: pdb.ResourceVersion, allows: pdb.Status.DisruptionsAllowed > 0}
}

// covering are the budgets whose selector takes in the pod, by name.
func (c *Cluster) covering(pod *corev1.Pod) []budget {
	all, err := c.budgets.PodDisruptionBudgets(pod.Namespace).List(labels.Everything())
	if err != nil {
		return nil
	}
	var out []budget
	for _, pdb := range all {
		selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
		if err == nil && selector.Matches(labels.Set(pod.Labels)) {
			out = append(out, seen(pdb))
		}
	}
	slices.SortFunc(out, func(a, b budget) int { return strings.Compare(a.name, b.name) })
	return out
}

// allows says whether the budgets that refused a pod may allow its eviction by now: of
// several, all but one must be gone; one must have changed and allow a disruption. One
// that is gone allows everything.
func (c *Cluster) allows(pod *corev1.Pod, were []budget) bool {
	switch len(were) {
	case 0:
		return false
	case 1:
	default:
		return len(c.covering(pod)) < 2
	}
	ns, name, err := cache.SplitMetaNamespaceKey(were[0].name)
	if err != nil {
		return false
	}
	pdb, err := c.budgets.PodDisruptionBudgets(ns).Get(name)
	if err != nil {
		return apierrors.IsNotFound(err)
	}
	now := seen(pdb)
	return now.allows && now.version != were[0].version
}

// WaitForSync blocks until the caches are filled or ctx ends.
func (c *Cluster) WaitForSync(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), c.nodeInformer.HasSynced, c.podInformer.HasSynced, c.budgetInformer.HasSynced) {
		return fmt.Errorf("waiting for the caches: %w", context.Cause(ctx))
	}
	return nil
}
