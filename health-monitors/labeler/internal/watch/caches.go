package watch

import (
	"context"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/nvidia/nvsentinel/internal/kube"
)

// Sources is how the pods are found that say what is on a Node.
type Sources struct {
	// Namespaces are those of the operators. Anybody may give a pod of his any label and
	// any node: pods of other namespaces are not read.
	Namespaces []string
	// DCGM and Driver are values of the label app, GKE of k8s-app; GKE may be empty.
	DCGM, Driver, GKE string
	// Slices says that an expression reads ResourceSlices.
	Slices bool
}

// byNode is the index of pods and ResourceSlices.
const byNode = "node"

// Caches are the objects that say what is on Nodes, as far as they are read.
type Caches struct {
	nodes        cache.SharedIndexInformer
	dcgm, driver []cache.SharedIndexInformer
	slices       cache.SharedIndexInformer // nil if nothing reads them
	factories    []informers.SharedInformerFactory
	leads        atomic.Bool
}

// NewCaches prepares the caches; keep fills them.
func NewCaches(client kubernetes.Interface, s Sources) *Caches {
	c := &Caches{}
	c.nodes = c.factory(client, packNode).Core().V1().Nodes().Informer()
	for _, namespace := range s.Namespaces {
		pods := func(key, value string) cache.SharedIndexInformer {
			return c.pods(client, namespace, labels.Set{key: value})
		}
		c.dcgm = append(c.dcgm, pods("app", s.DCGM))
		c.driver = append(c.driver, pods("app", s.Driver), pods("app.kubernetes.io/component", "nvidia-driver"))
		if s.GKE != "" {
			c.driver = append(c.driver, pods("k8s-app", s.GKE))
		}
	}
	if s.Slices {
		c.slices = c.factory(client, packSlice).Resource().V1().ResourceSlices().Informer()
		index(c.slices)
	}
	return c
}

func (c *Caches) factory(client kubernetes.Interface, slim cache.TransformFunc, options ...informers.SharedInformerOption) informers.SharedInformerFactory {
	f := informers.NewSharedInformerFactoryWithOptions(client, 0, append(options, informers.WithTransform(slim))...)
	c.factories = append(c.factories, f)
	return f
}

// pods are those of one namespace with a label.
func (c *Caches) pods(client kubernetes.Interface, namespace string, selector labels.Set) cache.SharedIndexInformer {
	informer := c.factory(client, slimPod, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(l *metav1.ListOptions) { l.LabelSelector = selector.String() })).Core().V1().Pods().Informer()
	index(informer)
	return informer
}

// index finds objects by the Node of which they say something. It is an error only of an
// informer that runs.
func index(informer cache.SharedIndexInformer) {
	_ = informer.AddIndexers(cache.Indexers{byNode: func(x any) ([]string, error) {
		if p, ok := x.(*pod); ok && !p.daemon {
			return nil, nil
		}
		if node := nodeOf(x); node != "" {
			return []string{node}, nil
		}
		return nil, nil
	}})
}

// nodeOf is the Node that an object is about; empty if it is about none.
func nodeOf(x any) string {
	if gone, ok := x.(cache.DeletedFinalStateUnknown); ok {
		x = gone.Obj
	}
	switch o := x.(type) {
	case *kube.Packed:
		return o.Node
	case *pod:
		return o.Node
	}
	return ""
}

// node is what is kept of a Node; nil if there is none.
func (c *Caches) node(name string) (*corev1.Node, error) {
	x, _, err := c.nodes.GetStore().GetByKey(name)
	if err != nil {
		return nil, fmt.Errorf("reading node %s from the cache: %w", name, err)
	}
	p, ok := x.(*kube.Packed)
	if !ok {
		return nil, nil
	}
	return unpackNode(p)
}

// keep keeps the caches until ctx ends. A replica that stands by keeps none: it lists what
// there is when it leads.
func (c *Caches) keep(ctx context.Context) {
	c.leads.Store(true)
	for _, f := range c.factories {
		f.Start(ctx.Done())
	}
	<-ctx.Done()
	for _, f := range c.factories {
		kube.AwaitStop(f.Shutdown)
	}
}

// Ready says which caches are not filled yet.
func (c *Caches) Ready() (bool, string) {
	switch {
	case !c.leads.Load():
		return true, "standing by"
	case !c.nodes.HasSynced():
		return false, "the node cache is not filled yet"
	case !c.filled():
		return false, "the pod caches are not filled yet"
	case c.slices != nil && !c.slices.HasSynced():
		return false, "the cache of ResourceSlices is not filled yet: their counts are left as they are"
	}
	return true, "filled"
}

// filled says whether Nodes and pods are known; ResourceSlices hold up their own
// classes alone.
func (c *Caches) filled() bool {
	for _, informer := range append(append([]cache.SharedIndexInformer{c.nodes}, c.dcgm...), c.driver...) {
		if !informer.HasSynced() {
			return false
		}
	}
	return true
}
