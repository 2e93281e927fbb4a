// Package nodecache is what the connector's own Node object was last seen to be.
// It is kept beside the spool, so that events are bound to their
// machine while the API server is away.
package nodecache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/durable"
	"github.com/nvidia/nvsentinel/internal/kube"
)

// Node is the connector's own node. It is safe for concurrent use.
type Node struct {
	name, path string
	client     kubernetes.Interface
	log        *slog.Logger

	mu        sync.Mutex
	identity  record.NodeIdentity
	object    *corev1.Node
	listeners []func()
}

// Open reads the kept identity of the named node from the file at path. Without
// a client only that is known.
func Open(name, path string, client kubernetes.Interface, log *slog.Logger) (*Node, error) {
	n := &Node{name: name, path: path, client: client, log: log}
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return n, nil
	}
	if err != nil && !errors.Is(err, syscall.EIO) {
		return nil, fmt.Errorf("reading the node's identity: %w", err)
	}
	if err := json.Unmarshal(b, &n.identity); err != nil {
		log.Warn("the kept identity of the node cannot be read; the next one replaces it", "file", path, "error", err)
		n.identity = record.NodeIdentity{}
	}
	return n, nil
}

// Identity is as it was seen last; empty when the Node was never seen.
func (n *Node) Identity() record.NodeIdentity {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.identity
}

// Object is the Node as the API server last showed it to this process, or nil.
// It must not be changed.
func (n *Node) Object() *corev1.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.object
}

// OnChange calls notify whenever the Node has changed. It must not block and is
// registered before Run.
func (n *Node) OnChange(notify func()) { n.listeners = append(n.listeners, notify) }

// Run watches the Node until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(n.client, 0,
		informers.WithTransform(kube.StripManagedFields),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, n.name).String()
		}))
	_, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    n.see,
		UpdateFunc: func(_, after any) { n.see(after) },
		DeleteFunc: func(any) { n.lose() },
	})
	if err != nil {
		return fmt.Errorf("watching node %s: %w", n.name, err)
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	kube.AwaitStop(factory.Shutdown)
	return nil
}

func (n *Node) see(x any) {
	object, ok := x.(*corev1.Node)
	if !ok {
		return
	}
	identity := kube.NodeIdentity(object)
	n.mu.Lock()
	changed := identity != n.identity
	n.object, n.identity = object, identity
	n.mu.Unlock()
	if changed {
		if err := n.keep(identity); err != nil {
			n.log.Error("keeping the node's identity failed", "error", err)
		}
	}
	for _, notify := range n.listeners {
		notify()
	}
}

// lose forgets the object but not the machine: the Node may come back.
func (n *Node) lose() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.object = nil
}

func (n *Node) keep(identity record.NodeIdentity) error {
	b, err := json.Marshal(identity)
	if err != nil {
		return fmt.Errorf("encoding the node's identity: %w", err)
	}
	return durable.Replace(n.path, append(b, '\n'), 0o640)
}
