package watch

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/nvidia/nvsentinel/health-monitors/labeler/labeling"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// Sources is how the pods are found that show what is on a Node.
type Sources struct {
	// Namespaces are those of the operators. Anybody may give a pod of his any label and
	// any node: pods of other namespaces are not read.
	Namespaces []string
	// DCGM and Driver are values of the label app, GKE of k8s-app; GKE may be empty.
	DCGM, Driver, GKE string
	// Slices means that an expression reads ResourceSlices.
	Slices bool
}

// byNode is the index of pods and ResourceSlices.
const byNode = "node"

// Caches are the objects that show what is on Nodes, as far as they are read.
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

// index finds objects by the Node that they are about. Only an informer that runs returns
// an error.
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

// Ready reports whether the caches are filled, and which are not.
func (c *Caches) Ready() (bool, string) {
	switch {
	case !c.leads.Load():
		return true, "standby, another replica leads"
	case !c.nodes.HasSynced():
		return false, "the node cache is not synced yet"
	case !c.filled():
		return false, "the pod caches are not synced yet"
	case c.slices != nil && !c.slices.HasSynced():
		return false, "the ResourceSlice cache is not synced yet: device counts stay unchanged"
	}
	return true, "filled"
}

// filled reports whether Nodes and pods are known; ResourceSlices hold up their own
// classes alone.
func (c *Caches) filled() bool {
	for _, informer := range append(append([]cache.SharedIndexInformer{c.nodes}, c.dcgm...), c.driver...) {
		if !informer.HasSynced() {
			return false
		}
	}
	return true
}

// sources enqueue a Node when something of it changes that is read.
func (l *Labeler) sources() (out []func(ctx context.Context, enqueue func(string)) error) {
	source := func(informer cache.SharedIndexInformer, changed func(x any, enqueue func(string))) {
		out = append(out, func(ctx context.Context, enqueue func(string)) error {
			handle, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
				AddFunc: func(x any) { changed(x, enqueue) },
				UpdateFunc: func(before, after any) {
					if !same(before, after) {
						changed(after, enqueue)
					}
				},
				DeleteFunc: func(x any) { changed(x, enqueue) },
			})
			if err != nil {
				return err
			}
			<-ctx.Done()
			return informer.RemoveEventHandler(handle)
		})
	}
	source(l.Caches.nodes, l.nodeChanged)
	for _, informer := range append(append([]cache.SharedIndexInformer{}, l.Caches.dcgm...), l.Caches.driver...) {
		source(informer, func(x any, enqueue func(string)) { enqueue(nodeOf(x)) })
	}
	if l.Caches.slices != nil {
		source(l.Caches.slices, func(x any, enqueue func(string)) { enqueue(nodeOf(x)) })
		out = append(out, l.slicesFilled)
	}
	return out
}

// slicesFilled enqueues every Node when the ResourceSlices are known.
func (l *Labeler) slicesFilled(ctx context.Context, enqueue func(string)) error {
	if !cache.WaitForCacheSync(ctx.Done(), l.Caches.slices.HasSynced) {
		return nil
	}
	for _, name := range l.Caches.nodes.GetStore().ListKeys() {
		enqueue(name)
	}
	<-ctx.Done()
	return nil
}

// same reports whether nothing has changed that is read: the caches keep no more.
func same(before, after any) bool {
	switch o := before.(type) {
	case *kube.Packed:
		p, ok := after.(*kube.Packed)
		return ok && o.Node == p.Node && bytes.Equal(o.Raw, p.Raw)
	case *pod:
		p, ok := after.(*pod)
		return ok && o.Node == p.Node && o.ended == p.ended && o.daemon == p.daemon && reflect.DeepEqual(o.is, p.is)
	}
	return false
}

// nodeChanged enqueues the Node, and those of its groups if its labels matter to them.
func (l *Labeler) nodeChanged(x any, enqueue func(string)) {
	name := nodeOf(x)
	if node, err := l.Caches.node(name); err == nil { // handle reports the error
		for _, peer := range l.take(name, node) {
			enqueue(peer)
		}
	}
	enqueue(name)
}

// take records the labels of a Node (nil: gone), and returns the Nodes to which they
// matter.
func (l *Labeler) take(name string, node *corev1.Node) []string {
	var labelled []labeling.Labelled
	below := map[string]bool{}
	if node != nil && !nodemark.OptedOut(node.Labels) {
		for _, c := range l.Policy.Classes {
			if one, ok := c.LabeledAs(node.Labels); ok {
				labelled = append(labelled, one)
			}
			below[c.Name] = c.Below(node.Labels)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.Policy.Classes {
		l.Metrics.below(c.Name, name, below[c.Name])
	}
	return l.groups.Set(name, labelled)
}
