package drain

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/node-drainer/plan"
)

// do carries out the effects of a step: the label first, then the pods.
func (d *Drain) do(ctx context.Context, node string, n *notes, sc scene, step plan.Step) error {
	if step.Label != "" {
		if err := d.label(ctx, sc.node, step.Label); err != nil {
			return err
		}
	}
	if len(step.Pods) == 0 {
		return nil
	}
	return d.hand.takeAway(ctx, node, n, step)
}

// label writes the state label under the version of the Node that the step was
// decided on.
func (d *Drain) label(ctx context.Context, node *corev1.Node, state nodemark.State) error {
	after, err := kube.PatchNode(ctx, d.client, node, func(n *corev1.Node) { nodemark.SetState(n, state) })
	if err != nil {
		return err
	}
	d.world.wrote(after)
	return nil
}
