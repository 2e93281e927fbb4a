package cluster

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodeclient"
	"github.com/nvidia/nvsentinel/platform-connectors/conditions"
)

// eventLife is how old a fault may be that is told as a Kubernetes Event: the API server
// keeps Events for an hour, unless it is told otherwise.
const eventLife = time.Hour

// news are the faults of a node that are not fatal and were not told yet, by what
// their Events say, in the order in which they were first seen.
type news struct {
	after int64     // the place in the store behind which they begin
	since time.Time // what was stored before is too old

	upTo  int64
	order []conditions.Notice
	seen  map[conditions.Notice]*nodeclient.FaultEvent
}

// news begins where a node's faults were told last. After a start nothing is known
// of that: what is young enough is told, and the Events say what was told before.
func (r *Conditions) news(node string) *news {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.told[node]
	return &news{after: at, upTo: at, since: r.Clock.Now().Add(-eventLife), seen: map[conditions.Notice]*nodeclient.FaultEvent{}}
}

// take notes a record of the node, if it is news about this machine.
func (n *news) take(r record.Record, machine record.NodeIdentity) {
	if r.Append <= n.after {
		return
	}
	n.upTo = max(n.upTo, r.Append)
	if !r.Acts() || !r.IsFault() || r.Event.IsFatal || r.CreatedAt.Before(n.since) || fault.Compare(fault.Of(r), machine) == fault.AnotherMachine {
		return
	}
	notice := conditions.NoticeOf(r.Event)
	seen, known := n.seen[notice]
	if !known {
		seen = &nodeclient.FaultEvent{Component: notice.Agent, Reason: notice.Reason, Message: notice.Message}
		n.seen[notice], n.order = seen, append(n.order, notice)
	}
	repeats, _ := r.Event.Repeats()
	seen.Times, seen.Last = seen.Times+int32(min(max(repeats, 1), 1<<20)), r.CreatedAt
}

// tell writes the news as Events about the Node: of more than MaxNotices different
// ones the newest. What was written before a failure is not counted again.
func (r *Conditions) tell(ctx context.Context, node *corev1.Node, n *news) error {
	if over := len(n.order) - conditions.MaxNotices; over > 0 {
		r.Log.Warn("a node has more faults than are told as Kubernetes Events; the oldest are left out", "node", node.Name, "left_out", over)
		n.order = slices.Delete(n.order, 0, over)
	}
	for _, notice := range n.order {
		err := nodeclient.CountFault(ctx, r.Client.CoreV1().Events(metav1.NamespaceDefault), node, *n.seen[notice])
		if r.Metrics.Told(err); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told == nil {
		r.told = map[string]int64{}
	}
	r.told[node.Name] = n.upTo
	return nil
}
