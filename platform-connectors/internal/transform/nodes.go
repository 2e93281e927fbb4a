package transform

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/nodeclient"
	"github.com/nvidia/nvsentinel/platform-connectors/pipeline"
)

// readDeadline bounds the reading of one Node.
const readDeadline = 3 * time.Second

// Cluster knows the connector's own node from its watch, and others, of which
// cluster-wide publishers speak, from a cache of reads. A node that cannot be
// read is not known; the event goes on without.
type Cluster struct {
	// Own is the connector's node by name, Object its Node as last seen, or nil.
	Own    string
	Object func() *corev1.Node
	// Client is nil without Kubernetes.
	Client *nodeclient.Client
	Clock  clock.PassiveClock
	Log    *slog.Logger

	mu    sync.Mutex
	size  int
	cache *cache.LRUExpireCache
}

// Node is what is known of a node.
func (c *Cluster) Node(ctx context.Context, name string, limits pipeline.Metadata) *pipeline.Node {
	if name == c.Own {
		return known(c.Object())
	}
	if c.Client == nil {
		return nil
	}
	cached := c.sized(limits.CacheSize)
	if n, ok := cached.Get(name); ok {
		if n, ok := n.(*pipeline.Node); ok {
			return n
		}
	}
	ctx, cancel := context.WithTimeout(ctx, readDeadline)
	defer cancel()
	object, err := c.Client.Nodes.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		c.Log.Warn("an event goes on without the metadata of its node", "node", name, "error", err)
		return nil
	}
	n := known(object)
	cached.Add(name, n, limits.CacheTTL)
	return n
}

// sized is the cache, a new one when its size was changed.
func (c *Cluster) sized(size int) *cache.LRUExpireCache {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cache == nil || c.size != size {
		c.cache, c.size = cache.NewLRUExpireCacheWithClock(size, c.Clock), size
	}
	return c.cache
}

func known(object *corev1.Node) *pipeline.Node {
	if object == nil {
		return nil
	}
	return &pipeline.Node{ProviderID: object.Spec.ProviderID, Labels: object.Labels}
}
