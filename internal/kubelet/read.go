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
	"k8s.io/client-go/kubernetes"
)

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
// one read of a Lease for each look. What it remembers may be lost at any time: the next
// looks begin anew.
// The zero value watches none.
type Watches struct {
	// Gap is that of each Watch.
	Gap time.Duration

	mu   sync.Mutex
	seen map[string]Watch
}

// Look reads the beat of a Node's kubelet once more and says what is known of it now.
func (w *Watches) Look(ctx context.Context, client kubernetes.Interface, node *corev1.Node, now time.Time) (Life, error) {
	beat, err := Read(ctx, client, node)
	if err != nil {
		return Life{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen == nil {
		w.seen = map[string]Watch{}
	}
	watch := w.seen[node.Name]
	watch.Gap = w.Gap
	watch = watch.See(beat, now)
	w.seen[node.Name] = watch
	return watch.Life(now), nil
}

// Forget ends the watch of a Node's kubelet.
func (w *Watches) Forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.seen, name)
}
