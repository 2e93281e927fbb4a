package reconciler

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/node-drainer/decision"
)

// Node is the cached Node, or what we wrote of it since; nil when there is none.
func (c *Cluster) Node(node string) (*corev1.Node, error) {
	o, _, err := c.nodes.GetByKey(node)
	if err != nil {
		return nil, fmt.Errorf("reading node %s from the cache: %w", node, err)
	}
	n, _ := o.(*corev1.Node)
	return n, nil
}

// LiveNode is the Node as the API server has it; nil when it is sure that
// there is none.
func (c *Cluster) LiveNode(ctx context.Context, node string) (*corev1.Node, error) {
	n, err := kube.ReadNode(ctx, c.client, node)
	if errors.Is(err, kube.ErrNodeDeleted) {
		return nil, nil
	}
	return n, err
}

// wrote notes a Node as our own write left it.
func (c *Cluster) wrote(n *corev1.Node) { c.nodes.Mutation(n) }

// session is the session that the cached Node bears, or empty.
func (c *Cluster) session(node string) string {
	n, err := c.Node(node)
	if err != nil || n == nil {
		return ""
	}
	return nodemark.Session(n)
}

// label writes the state label while the Node is as the step was decided on.
func (rc *Reconciler) label(ctx context.Context, node *corev1.Node, state nodemark.State) error {
	after, err := kube.PatchNode(ctx, rc.client, node, func(n *corev1.Node) { nodemark.SetState(n, state) })
	if err != nil {
		return err
	}
	rc.cluster.wrote(after)
	return nil
}

// nodeChanged compares what a decision sees, but for the state label, which this
// service and fault-remediation write themselves, and for the taint by which
// Kubernetes follows a cordon, which shows nothing that the cordon does not.
func nodeChanged(a, b *corev1.Node) bool {
	return a.UID != b.UID || !equality.Semantic.DeepEqual(withoutState(a), withoutState(b))
}

// withoutState are the facts of a Node that enqueue it.
func withoutState(node *corev1.Node) decision.Node {
	facts := decision.NodeOf(node)
	facts.State = ""
	facts.Taints = slices.DeleteFunc(facts.Taints, func(t record.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable })
	return facts
}
