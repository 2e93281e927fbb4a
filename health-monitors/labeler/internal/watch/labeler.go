// Package watch keeps the labels of Nodes as package labeling decides: it watches
// Nodes, the pods on them and, where they are counted, ResourceSlices, and writes
// one patch when a label should be another.
package watch

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/health-monitors/labeler/labeling"
	"github.com/nvidia/nvsentinel/internal/consume"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/retry"
)

// Labeler keeps the labels. Its fields are set before Loop.
type Labeler struct {
	Client  kubernetes.Interface
	Caches  *Caches
	Policy  labeling.Policy
	Workers int
	Clock   clock.WithTicker
	Log     *slog.Logger
	Metrics *Metrics

	mu     sync.Mutex
	groups *labeling.Groups
	memory map[string]labeling.Memory // by node
	warned map[string]bool            // classes of which a failure was logged
}

// Loop is the work of the leader.
func (l *Labeler) Loop(metrics *consume.Metrics) *consume.Loop[struct{}] {
	l.groups, l.memory, l.warned = labeling.NewGroups(), map[string]labeling.Memory{}, map[string]bool{}
	return &consume.Loop[struct{}]{
		Name: "labels", Handle: l.handle, Sources: l.sources(), Workers: l.Workers, Clock: l.Clock, Log: l.Log, Metrics: metrics,
	}
}

// Run acts as the leader until ctx ends, and keeps the caches meanwhile. Nothing is decided
// before they are filled, and the labels of all Nodes are recorded.
func (l *Labeler) Run(ctx context.Context, loop *consume.Loop[struct{}]) error {
	ctx, cancel := context.WithCancel(ctx)
	var caches sync.WaitGroup
	caches.Go(func() { l.Caches.keep(ctx) })
	defer caches.Wait()
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), l.Caches.filled) {
		return nil
	}
	for _, name := range l.Caches.nodes.GetStore().ListKeys() {
		node, err := l.Caches.node(name)
		if err != nil {
			return err
		}
		l.take(name, node)
	}
	return loop.Run(ctx)
}

// handle makes the labels of one Node what they should be.
func (l *Labeler) handle(ctx context.Context, name string) error {
	node, err := l.Caches.node(name)
	if err != nil {
		return err
	}
	if node == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.memory, name)
		return nil
	}
	verdict := l.decide(node)
	if err := l.write(ctx, node, verdict); err != nil {
		return err
	}
	if verdict.Again > 0 {
		return retry.Park(verdict.Again, "a missing object may return")
	}
	return nil
}

// decide evaluates a Node and keeps what the next decision needs.
func (l *Labeler) decide(node *corev1.Node) labeling.Verdict {
	view := l.view(node)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.Policy.Classes {
		seen := view.Counts[c.Name]
		seen.Peers = l.groups.Most(c.Name, seen.Group)
		view.Counts[c.Name] = seen
	}
	verdict := labeling.Decide(view, l.Policy, l.memory[node.Name], l.Clock.Now())
	l.memory[node.Name] = verdict.Memory
	return verdict
}

// write sends what is to change, under the version of the Node that was evaluated.
func (l *Labeler) write(ctx context.Context, node *corev1.Node, verdict labeling.Verdict) error {
	changes := verdict.Changes(node.Labels)
	if len(changes) == 0 {
		return nil
	}
	_, err := kube.PatchNode(ctx, l.Client, node, func(n *corev1.Node) { n.Labels = verdict.Apply(n.Labels) })
	switch {
	case errors.Is(err, kube.ErrNodeDeleted):
		return nil
	case errors.Is(err, kube.ErrConflict):
		return retry.Race(err.Error())
	case err != nil:
		l.Metrics.Failures.Inc()
		return err
	}
	for _, c := range changes {
		l.Metrics.Changes.WithLabelValues(string(c.Reason)).Inc()
		l.Log.Info("node label changed", "node", node.Name, "label", c.Key, "value", c.Value, "was", node.Labels[c.Key], "reason", c.Reason)
	}
	return nil
}

// view is what the caches know of a Node, but for its groups.
func (l *Labeler) view(node *corev1.Node) labeling.View {
	v := labeling.View{Labels: node.Labels, Ready: kube.NodeReady(node), Counts: map[string]labeling.Count{}}
	v.DCGM, v.Driver = podsOn(l.Caches.dcgm, node.Name), podsOn(l.Caches.driver, node.Name)
	v.DCGMAnywhere = len(v.DCGM) > 0 || anywhere(l.Caches.dcgm)
	v.DriverAnywhere = len(v.Driver) > 0 || anywhere(l.Caches.driver)
	if nodemark.OptedOut(node.Labels) {
		return v
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(node)
	for _, c := range l.Policy.Classes {
		seen := labeling.Count{Group: c.Group(node.Labels)}
		if err != nil {
			seen.Trouble = labeling.NotEvaluated
		} else {
			seen.Value, seen.Trouble = l.count(c, node.Name, object)
		}
		v.Counts[c.Name] = seen
	}
	return v
}

// count evaluates one class on a Node.
func (l *Labeler) count(c labeling.Class, node string, object map[string]any) (int, labeling.Reason) {
	var resourceSlices []any
	if c.ReadsSlices() {
		if !l.Caches.slices.HasSynced() {
			l.Metrics.Skipped.WithLabelValues(c.Name, string(labeling.NotListed)).Inc()
			return 0, labeling.NotListed
		}
		resourceSlices = slicesOf(l.Caches.slices, node)
	}
	n, err := c.Count(object, resourceSlices)
	switch {
	case errors.Is(err, labeling.ErrNoSource):
		return 0, labeling.NoSource
	case err != nil:
		l.Metrics.Skipped.WithLabelValues(c.Name, string(labeling.NotEvaluated)).Inc()
		l.warn(c.Name, node, err)
		return 0, labeling.NotEvaluated
	}
	return n, ""
}

func (l *Labeler) warn(class, node string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.warned[class] {
		l.warned[class] = true
		l.Log.Warn("device count failed: labels stay unchanged, further failures for this class are only counted", "class", class, "node", node, "error", err)
	}
}

// podsOn are the pods of a Node that have not ended.
func podsOn(informers []cache.SharedIndexInformer, node string) (out []labeling.Pod) {
	for _, informer := range informers {
		objects, err := informer.GetIndexer().ByIndex(byNode, node)
		if err != nil {
			continue // the index is there: it was added before the start
		}
		for _, x := range objects {
			if p, ok := x.(*pod); ok && !p.ended {
				is := p.is
				is.Name = p.Namespace + "/" + p.Name
				out = append(out, is)
			}
		}
	}
	return out
}

// anywhere reports whether there are such pods on any Node.
func anywhere(informers []cache.SharedIndexInformer) bool {
	return slices.ContainsFunc(informers, func(i cache.SharedIndexInformer) bool { return len(i.GetIndexer().ListIndexFuncValues(byNode)) > 0 })
}

// slicesOf are the ResourceSlices of a Node, as decoded JSON.
func slicesOf(informer cache.SharedIndexInformer, node string) []any {
	objects, err := informer.GetIndexer().ByIndex(byNode, node)
	if err != nil {
		return nil // as above
	}
	var out []any
	for _, x := range objects {
		p, ok := x.(*kube.Packed)
		if !ok {
			continue
		}
		slice, err := unpackSlice(p)
		if err != nil {
			continue // these are our own bytes
		}
		if object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(slice); err == nil {
			out = append(out, object)
		}
	}
	return out
}
