package watch

import (
	"bytes"
	"context"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/nvidia/nvsentinel/health-monitors/labeler/labeling"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

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

// same says whether nothing has changed that is read: the caches keep no more.
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

// nodeChanged enqueues the Node, and those of its groups if its labels say something
// to them.
func (l *Labeler) nodeChanged(x any, enqueue func(string)) {
	name := nodeOf(x)
	if node, err := l.Caches.node(name); err == nil { // what is wrong is told when it is handled
		for _, peer := range l.take(name, node) {
			enqueue(peer)
		}
	}
	enqueue(name)
}

// take takes in what the labels of a Node (nil: gone) say, and returns the Nodes to
// whom that matters.
func (l *Labeler) take(name string, node *corev1.Node) []string {
	var says []labeling.Labelled
	below := map[string]bool{}
	if node != nil && !nodemark.OptedOut(node.Labels) {
		for _, c := range l.Policy.Classes {
			if one, ok := c.Says(node.Labels); ok {
				says = append(says, one)
			}
			below[c.Name] = c.Below(node.Labels)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.Policy.Classes {
		l.Metrics.below(c.Name, name, below[c.Name])
	}
	return l.groups.Set(name, says)
}
