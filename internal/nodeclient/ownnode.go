package nodeclient

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/durable"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// OwnNode is what the connector's own Node object was last seen to be. It is kept beside the
// spool, so that events are bound to their machine while the API server is away.

// stopGrace is how long the watch gets to stop.
const stopGrace = time.Second

// OwnNode is the connector's own node. It is safe for concurrent use.
type OwnNode struct {
	name, path string
	client     *Client
	log        *slog.Logger

	mu        sync.Mutex
	identity  record.NodeIdentity
	object    *corev1.Node
	listeners []func()
}

// identityVersion is the version of the file's shape.
const identityVersion = 1

// ownIdentity is the file's shape.
type ownIdentity struct {
	Version int `json:"version"`
	record.NodeIdentity
}

// OpenOwnNode reads the kept identity of the named node from the file at path. Without
// a client only that is known.
func OpenOwnNode(name, path string, client *Client, log *slog.Logger) (*OwnNode, error) {
	n := &OwnNode{name: name, path: path, client: client, log: log}
	var kept ownIdentity
	_, err := durable.Load(path, durable.Versions{Newest: identityVersion}, &kept)
	if err != nil && !errors.Is(err, durable.ErrDamaged) {
		return nil, err
	}
	if err != nil {
		log.Warn("stored node identity unreadable, replaced by the next one", "file", path, "error", err)
		return n, nil
	}
	n.identity = kept.NodeIdentity
	return n, nil
}

// Identity is as it was seen last; empty when the Node was never seen.
func (own *OwnNode) Identity() record.NodeIdentity {
	own.mu.Lock()
	defer own.mu.Unlock()
	return own.identity
}

// Object is the Node as the API server last showed it to this process, or nil.
// It must not be changed.
func (own *OwnNode) Object() *corev1.Node {
	own.mu.Lock()
	defer own.mu.Unlock()
	return own.object
}

// OnChange calls notify whenever the Node has changed. It must not block and is
// registered before Run.
func (own *OwnNode) OnChange(notify func()) { own.listeners = append(own.listeners, notify) }

// Run watches the Node until ctx ends.
func (own *OwnNode) Run(ctx context.Context) error {
	only := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, own.name).String()
	}
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				only(&o)
				return own.client.Nodes.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				only(&o)
				return own.client.Nodes.Watch(ctx, o)
			},
		},
		ObjectType: &corev1.Node{},
		Transform:  strip,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    own.see,
			UpdateFunc: func(_, after any) { own.see(after) },
			DeleteFunc: func(any) { own.lose() },
		},
	})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		controller.RunWithContext(ctx)
	}()
	<-ctx.Done()
	select {
	case <-stopped:
	case <-clock.RealClock{}.After(stopGrace): // it may be waiting for an API server that is away
	}
	return nil
}

// strip drops what nobody here reads of a Node, which is most of it.
func strip(x any) (any, error) {
	if node, ok := x.(*corev1.Node); ok {
		node.ManagedFields = nil
		node.Status.Images, node.Status.VolumesAttached, node.Status.VolumesInUse = nil, nil, nil
	}
	return x, nil
}

func (own *OwnNode) see(x any) {
	object, ok := x.(*corev1.Node)
	if !ok {
		return
	}
	identity := Identity(object)
	own.mu.Lock()
	changed := identity != own.identity
	own.object, own.identity = object, identity
	own.mu.Unlock()
	if changed {
		if err := own.keep(identity); err != nil {
			own.log.Error("node identity not stored", "error", err)
		}
	}
	for _, notify := range own.listeners {
		notify()
	}
}

// lose forgets the object but not the machine: the Node may come back.
func (own *OwnNode) lose() {
	own.mu.Lock()
	defer own.mu.Unlock()
	own.object = nil
}

func (own *OwnNode) keep(seen record.NodeIdentity) error {
	_, err := durable.Save(own.path, ownIdentity{identityVersion, seen})
	return err
}

// Ends detects when faults of a Node may have ended without a recovery that goes
// through its connector. It is not safe for concurrent use.
type Ends struct{ node *corev1.Node }

// See takes the Node as it is now, and reports whether since the last time its session
// is over or another, somebody uncordoned it, or asked to have a fault cleared.
func (e *Ends) See(node *corev1.Node) bool {
	if node == nil {
		return false
	}
	before := e.node
	e.node = node
	return before != nil && ended(before, node)
}

func ended(before, now *corev1.Node) bool {
	session := nodemark.Session(before)
	if session != "" && session != nodemark.Session(now) ||
		before.Spec.Unschedulable && !now.Spec.Unschedulable {
		return true
	}
	for key, value := range now.Annotations {
		if strings.HasPrefix(key, nodemark.ClearPrefix) && before.Annotations[key] != value {
			return true
		}
	}
	return false
}
