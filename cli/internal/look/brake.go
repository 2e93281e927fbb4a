package look

import (
	"context"

	"github.com/nvidia/nvsentinel/cli/timeline"
	"github.com/nvidia/nvsentinel/internal/brake"
)

// brake asks how the emergency brake stands. Who may not read it is told so.
func (s Sources) brake(ctx context.Context) timeline.Brake {
	source := opened(clusterName, s.ClusterError)
	var state brake.State
	ask(ctx, s.Within, &source, func(ctx context.Context) (err error) {
		state, err = brake.Read(ctx, s.Cluster.Clientset, s.Namespace)
		return err
	})
	return timeline.Brake{Read: source.Read, Problem: source.Problem, On: state.On, Since: state.Since, By: state.By, Reason: state.Reason}
}
