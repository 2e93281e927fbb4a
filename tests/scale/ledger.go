package scale

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// ledger has since when each node is in quarantine, or not, as a watch shows it.
type ledger struct {
	mu    sync.Mutex
	nodes map[string]entry
}

type entry struct {
	uid         string
	quarantined bool
	since       time.Time
}

// follow keeps a ledger of all nodes until ctx ends.
func (s *site) follow(ctx context.Context) (*ledger, error) {
	l := &ledger{nodes: map[string]entry{}}
	factory := informers.NewSharedInformerFactoryWithOptions(s.client, 0, informers.WithTransform(l.write))
	informer := factory.Core().V1().Nodes().Informer()
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, fmt.Errorf("following the nodes: %w", ctx.Err())
	}
	return l, nil
}

// write notes what an object shows when it comes, and leaves a name of it: ten
// thousand nodes would be as much memory as a service of the suite takes.
func (l *ledger) write(object any) (any, error) {
	now := time.Now()
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	l.note(node, now)
	slim := &corev1.Node{}
	slim.Name, slim.ResourceVersion = node.Name, node.ResourceVersion
	return slim, nil
}

func (l *ledger) note(node *corev1.Node, now time.Time) {
	session := node.Annotations[nodemark.SessionAnnotation] != ""
	if session != node.Spec.Unschedulable {
		return // between two writes
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e, known := l.nodes[node.Name]
	if known && e.quarantined == session {
		return
	}
	l.nodes[node.Name] = entry{string(node.UID), session, now}
}

func (l *ledger) at(node string) entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.nodes[node]
}

// await waits until nodes are in quarantine, or all out of it.
func (l *ledger) await(ctx context.Context, limit time.Duration, quarantined bool, nodes []string) error {
	err := wait.PollUntilContextTimeout(ctx, pollInterval, limit, true, func(context.Context) (bool, error) {
		for len(nodes) > 0 && l.at(nodes[0]).quarantined == quarantined {
			nodes = nodes[1:]
		}
		return len(nodes) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s and up to %d other nodes to be in quarantine=%v: %w", nodes[0], len(nodes)-1, quarantined, err)
	}
	return nil
}
