package reconciler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/nvidia/nvsentinel/fault-remediation/action"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/remediation"
)

// kind is one resource in one namespace ("" is all of the cluster).
type kind struct {
	gvr       schema.GroupVersionResource
	namespace string
}

// Watch enqueues the node of a repair object of this service whenever the object changes. A
// kind that is not served is asked for again and again, and named by Ready.
type Watch struct {
	client dynamic.Interface
	log    *slog.Logger
	kinds  []kind
	own    func(*unstructured.Unstructured) bool

	mu      sync.Mutex
	missing map[kind]string
}

// NewWatch watches the kinds of all repairs. News of an object enqueues no node if own
// reports that it is the caller's own.
func NewWatch(client dynamic.Interface, repairs action.Policy, log *slog.Logger, own func(*unstructured.Unstructured) bool) *Watch {
	w := &Watch{client: client, log: log, own: own, missing: map[kind]string{}}
	for _, a := range repairs.All() {
		if k := (kind{a.GVR(), a.Namespace}); !slices.Contains(w.kinds, k) {
			w.kinds = append(w.kinds, k)
		}
	}
	return w
}

// Source watches until ctx ends.
func (w *Watch) Source(ctx context.Context, enqueue func(node string)) error {
	var running sync.WaitGroup
	for _, k := range w.kinds {
		informer := dynamicinformer.NewFilteredDynamicInformer(w.client, k.gvr, k.namespace, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
			o.LabelSelector = remediation.ManagedByLabel + "=" + remediation.ManagedBy
		}).Informer()
		if err := w.prepare(informer, k, enqueue); err != nil {
			return err
		}
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	<-ctx.Done()
	kube.AwaitStop(running.Wait)
	return nil
}

func (w *Watch) prepare(informer cache.SharedIndexInformer, k kind, enqueue func(node string)) error {
	notify := func(x any) {
		w.works(k)
		if node := nodeOf(x); node != "" {
			enqueue(node)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(x any) {
			if obj, ok := x.(*unstructured.Unstructured); !ok || !w.own(obj) {
				notify(x)
			}
		},
		UpdateFunc: func(_, x any) { notify(x) }, DeleteFunc: notify,
	})
	err = errors.Join(err, informer.SetTransform(kube.Strip),
		informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { w.failed(k, err) }))
	if err != nil {
		return fmt.Errorf("preparing the watch of %s: %w", k.gvr, err)
	}
	return nil
}

// nodeOf is the node that an object is about.
func nodeOf(x any) string {
	if gone, ok := x.(cache.DeletedFinalStateUnknown); ok {
		x = gone.Obj
	}
	obj, ok := x.(*unstructured.Unstructured)
	if !ok {
		return ""
	}
	if node, _, _ := unstructured.NestedString(obj.Object, "spec", "nodeName"); node != "" {
		return node
	}
	return obj.GetAnnotations()[remediation.NodeAnnotation]
}

// failed notes why a kind can not be watched and reports it once.
func (w *Watch) failed(k kind, err error) {
	why := "cannot be watched"
	if kindMissing(err) {
		why = "is not served by the API server"
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.missing[k] != why {
		w.log.Warn("maintenance kind "+why+", retrying", "resource", k.gvr.String(), "error", err)
	}
	w.missing[k] = why
}

func (w *Watch) works(k kind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.missing, k)
}

// Ready names the kinds that can not be watched. A missing kind only parks the
// actions that need it, so that the answer is always ok.
func (w *Watch) Ready() (bool, string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.missing) == 0 {
		return true, "all maintenance kinds are watched"
	}
	var list []string
	for k, why := range maps.All(w.missing) {
		list = append(list, k.gvr.GroupResource().String()+" "+why)
	}
	slices.Sort(list)
	return true, strings.Join(list, ", ") + ", its remediations are parked"
}

// Relevant reports whether a Node's change matters to a repair: its session, its
// claim that is gone, its marks, its machine or boot, its repeat offender mark. A claim that is
// made lets nothing more be done.
func Relevant(before, after *corev1.Node) bool {
	if !concerns(before) && !concerns(after) {
		return false
	}
	if before == nil || after == nil {
		return true
	}
	was, is := nodeFacts(before), nodeFacts(after)
	if is.Claim != "" {
		was.Claim = is.Claim
	}
	return was != is
}

// concerns reports whether a Node bears a session, or a repeat offender mark.
func concerns(n *corev1.Node) bool {
	m := nodemark.Read(n)
	return m.Session != "" || m.RepeatOffender.Note != ""
}
