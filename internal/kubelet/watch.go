// Package kubelet reports whether a node's kubelet is alive, by what it writes: the Lease of
// its node or, where there is none, the heartbeat of the Ready condition. The condition
// alone does not show it: it stays True when the machine dies and nobody sets it to Unknown.
// No clock of a node is read. What counts is that a value changed between two reads.
package kubelet

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// State is what is known of a kubelet.
type State int

// States; the zero value is Unknown.
const (
	// Unknown: it was not watched for long enough.
	Unknown State = iota
	// Alive: it wrote while it was watched, within the last minute.
	Alive
	// Silent: it wrote nothing for as long as it was watched.
	Silent
)

// Liveness is what is known of a kubelet at one moment.
type Liveness struct {
	State State
	// Until is when an Unknown kubelet is Silent, if it writes nothing; zero otherwise.
	Until time.Time
}

// Beat is what a kubelet wrote last.
type Beat struct {
	// Node is the uid of the Node: another one is another kubelet.
	Node types.UID
	// Value is another one after each write.
	Value string
	// Within is the time in which a kubelet that is alive writes again.
	Within time.Duration
}

const (
	// fresh is how long a write that was seen proves a kubelet alive.
	fresh = time.Minute
	// PollInterval is the time after which a kubelet should be looked at again while its
	// state matters: a Lease is renewed every 10 s.
	PollInterval = 15 * time.Second
)

// Watch is what the reads of one kubelet's beat showed. The zero value has seen none.
type Watch struct {
	// Gap is the longest time between two reads after which another value proves the
	// kubelet alive; a minute if it is less.
	Gap time.Duration

	beat Beat
	// since is the first of an unbroken row of reads, read the last one, and changed the
	// last one that found another value than the one before it.
	since, read, changed time.Time
}

// See adds a read. A change that was found after a longer gap may be as old as that: it
// restarts the watch. Without a change the kubelet was silent, however long the gap was.
func (w Watch) See(b Beat, now time.Time) Watch {
	gap := now.Sub(w.read)
	changed := w.beat.Value != b.Value
	switch {
	case w.beat.Node != b.Node || w.beat.Within != b.Within || gap < 0 || changed && gap > max(w.Gap, fresh):
		return Watch{Gap: w.Gap, beat: b, since: now, read: now}
	case changed:
		w.beat, w.changed = b, now
	}
	w.read = now
	return w
}

// Liveness returns what the reads show.
func (w Watch) Liveness(now time.Time) Liveness {
	last := w.since
	if w.changed.After(last) {
		last = w.changed
	}
	until := last.Add(w.beat.Within)
	switch {
	case !w.changed.IsZero() && now.Sub(w.changed) <= fresh:
		return Liveness{State: Alive}
	case now.Before(until):
		return Liveness{State: Unknown, Until: until}
	}
	return Liveness{State: Silent}
}

// Bounds of Beat.Within. A kubelet renews its Lease four times within the Lease's duration,
// and reports the status of its Node every five minutes, give or take a half.
const (
	leastWithin     = time.Minute
	heartbeatWithin = 10 * time.Minute
)

// Read reads what the kubelet of a Node wrote last: its Lease from the API server, or, if
// there certainly is none, the heartbeat of the Node as it was read.
func Read(ctx context.Context, client kubernetes.Interface, node *corev1.Node) (Beat, error) {
	lease, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, node.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return Beat{Node: node.UID, Value: heartbeat(node), Within: heartbeatWithin}, nil
	case err != nil:
		return Beat{}, fmt.Errorf("reading the Lease of the kubelet of node %s: %w", node.Name, err)
	}
	return Beat{Node: node.UID, Value: renewal(lease), Within: within(lease)}, nil
}

func heartbeat(node *corev1.Node) string {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.LastHeartbeatTime.UTC().Format(time.RFC3339)
		}
	}
	return ""
}

func renewal(lease *coordinationv1.Lease) string {
	if lease.Spec.RenewTime == nil {
		return ""
	}
	return lease.Spec.RenewTime.UTC().Format(time.RFC3339Nano)
}

// within is six renewals: one and a half of the Lease's duration.
func within(lease *coordinationv1.Lease) time.Duration {
	if lease.Spec.LeaseDurationSeconds == nil {
		return leastWithin
	}
	d := time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
	return min(max(d+d/2, leastWithin), heartbeatWithin)
}

// Watches reads the beats of kubelets while somebody has to know whether they are alive,
// one read of a Lease for each poll. What it remembers may be lost at any time: the next
// polls start over. The zero value watches none.
type Watches struct {
	// Gap is that of each Watch.
	Gap time.Duration

	mu      sync.Mutex
	watches map[string]Watch
}

// Poll reads the beat of a Node's kubelet once more and reports what is known of it now.
func (w *Watches) Poll(ctx context.Context, client kubernetes.Interface, node *corev1.Node, now time.Time) (Liveness, error) {
	beat, err := Read(ctx, client, node)
	if err != nil {
		return Liveness{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watches == nil {
		w.watches = map[string]Watch{}
	}
	watch := w.watches[node.Name]
	watch.Gap = w.Gap
	watch = watch.See(beat, now)
	w.watches[node.Name] = watch
	return watch.Liveness(now), nil
}

// Forget ends the watch of a Node's kubelet.
func (w *Watches) Forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.watches, name)
}
