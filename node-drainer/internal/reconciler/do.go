package reconciler

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/node-drainer/decision"
)

// do carries out the effects of a step: the label first, then the pods.
func (rc *Reconciler) do(ctx context.Context, node string, n *notes, sc snapshot, step decision.Step) error {
	if step.Label != "" {
		if err := rc.label(ctx, sc.node, step.Label); err != nil {
			return err
		}
	}
	if len(step.Pods) == 0 {
		return nil
	}
	return rc.evictor.takeAway(ctx, node, n, step)
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
