package watch

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/nvidia/nvsentinel/internal/kube"
)

// Sources is how the pods are found that say what is on a Node.
type Sources struct {
	// DCGM and Driver are values of the label app, GKE of k8s-app; GKE may be empty.
	DCGM, Driver, GKE string
	// Slices says that an expression reads ResourceSlices.
	Slices bool
}

// byNode is the index of pods and ResourceSlices.
const byNode = "node"

// Caches are the objects that say what is on Nodes, as far as they are read.
type Caches struct {
	nodes        corelisters.NodeLister
	nodeInformer cache.SharedIndexInformer
	dcgm, driver []cache.SharedIndexInformer
	slices       cache.SharedIndexInformer // nil if nothing reads them
	factories    []informers.SharedInformerFactory
}

// NewCaches prepares the caches; Run fills them.
func NewCaches(client kubernetes.Interface, s Sources) *Caches {
	c := &Caches{}
	nodes := c.factory(client, "", slimNode)
	c.nodes, c.nodeInformer = nodes.Core().V1().Nodes().Lister(), nodes.Core().V1().Nodes().Informer()
	c.dcgm = []cache.SharedIndexInformer{c.pods(client, "app", s.DCGM)}
	c.driver = []cache.SharedIndexInformer{c.pods(client, "app", s.Driver), c.pods(client, "app.kubernetes.io/component", "nvidia-driver")}
	if s.GKE != "" {
		c.driver = append(c.driver, c.pods(client, "k8s-app", s.GKE))
	}
	if s.Slices {
		c.slices = c.factory(client, "", kube.Strip).Resource().V1().ResourceSlices().Informer()
		index(c.slices)
	}
	return c
}

func (c *Caches) factory(client kubernetes.Interface, selector string, slim cache.TransformFunc) informers.SharedInformerFactory {
	f := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(slim),
		informers.WithTweakListOptions(func(l *metav1.ListOptions) { l.LabelSelector = selector }))
	c.factories = append(c.factories, f)
	return f
}

func (c *Caches) pods(client kubernetes.Interface, key, value string) cache.SharedIndexInformer {
	informer := c.factory(client, labels.Set{key: value}.String(), slimPod).Core().V1().Pods().Informer()
	index(informer)
	return informer
}

// index finds objects by their Node. It is an error only of an informer that runs.
func index(informer cache.SharedIndexInformer) {
	_ = informer.AddIndexers(cache.Indexers{byNode: func(x any) ([]string, error) {
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
	case *corev1.Node:
		return o.Name
	case *corev1.Pod:
		return o.Spec.NodeName
	case *resourcev1.ResourceSlice:
		if o.Spec.NodeName != nil {
			return *o.Spec.NodeName
		}
	}
	return ""
}

// Run keeps the caches until ctx ends.
func (c *Caches) Run(ctx context.Context) error {
	for _, f := range c.factories {
		f.Start(ctx.Done())
	}
	<-ctx.Done()
	for _, f := range c.factories {
		kube.AwaitStop(f.Shutdown)
	}
	return nil
}

// Ready says which caches are not filled yet.
func (c *Caches) Ready() (bool, string) {
	switch {
	case !c.nodeInformer.HasSynced():
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
	for _, informer := range append(append([]cache.SharedIndexInformer{c.nodeInformer}, c.dcgm...), c.driver...) {
		if !informer.HasSynced() {
			return false
		}
	}
	return true
}

// slimNode keeps of a Node what is read, and what an expression may read.
func slimNode(x any) (any, error) {
	node, ok := x.(*corev1.Node)
	if !ok {
		return x, nil
	}
	m := node.ObjectMeta
	slim := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Labels: m.Labels, Annotations: m.Annotations, CreationTimestamp: m.CreationTimestamp,
		},
		Spec:   node.Spec,
		Status: corev1.NodeStatus{Capacity: node.Status.Capacity, Allocatable: node.Status.Allocatable, NodeInfo: node.Status.NodeInfo},
	}
	if kube.NodeReady(node) {
		slim.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	}
	return slim, nil
}

// slimPod keeps of a pod what is read.
func slimPod(x any) (any, error) {
	pod, ok := x.(*corev1.Pod)
	if !ok {
		return x, nil
	}
	m := pod.ObjectMeta
	slim := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: corev1.PodStatus{Phase: pod.Status.Phase},
	}
	for _, c := range pod.Spec.Containers {
		slim.Spec.Containers = append(slim.Spec.Containers, corev1.Container{Image: c.Image})
	}
	if podReady(pod) {
		slim.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return slim, nil
}

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// ended says whether a pod runs no more.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
