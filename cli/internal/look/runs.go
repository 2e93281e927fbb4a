package look

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nvidia/nvsentinel/cli/story"
	"github.com/nvidia/nvsentinel/repair-chain/api/v1alpha1"
)

// Runs are all runs of repair chains; a cluster that does not know the kind has none.
func (s Sources) Runs(ctx context.Context) (runs []v1alpha1.RepairRun, source story.Source) {
	source = opened(clusterName, s.ClusterError)
	ask(ctx, s.Within, &source, func(ctx context.Context) error {
		resource := s.Cluster.Dynamic.Resource(v1alpha1.GroupVersion.WithResource("repairruns"))
		for next := ""; ; {
			list, err := resource.List(ctx, metav1.ListOptions{Limit: pageOf, Continue: next})
			if apierrors.IsNotFound(err) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("listing repairruns: %w", err)
			}
			for _, x := range list.Items {
				var run v1alpha1.RepairRun
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(x.Object, &run); err != nil {
					return fmt.Errorf("reading RepairRun %s: %w", x.GetName(), err)
				}
				runs = append(runs, run)
			}
			if next = list.GetContinue(); next == "" {
				return nil
			}
		}
	})
	return runs, source
}
