package look

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
	"github.com/nvidia/nvsentinel/cli/timeline"
	"github.com/nvidia/nvsentinel/internal/kube"
)

// Runs are all runs of repair chains; a cluster that does not know the kind has none.
func (s Sources) Runs(ctx context.Context) (runs []v1alpha1.RepairRun, source timeline.Source) {
	source = opened(clusterName, s.ClusterError)
	var unread []timeline.Refused
	ask(ctx, s.Within, &source, func(ctx context.Context) (err error) {
		runs, unread, err = listed[v1alpha1.RepairRun](ctx, s.Cluster, "repairruns")
		return err
	})
	if source.Read && len(unread) > 0 {
		source.Problem = fmt.Sprintf("%d runs cannot be read and are left out, the first is %s: %s", len(unread), unread[0].Name, unread[0].Message)
	}
	return runs, source
}

// chains are the runs of repair chains, and the chains and templates that cannot be used.
// An object that cannot be decoded is one of these.
func chains(ctx context.Context, cluster *kube.Client) ([]v1alpha1.RepairRun, []timeline.Refused, error) {
	runs, out, err := listed[v1alpha1.RepairRun](ctx, cluster, "repairruns")
	if err != nil {
		return nil, nil, err
	}
	chains, unread, err := listed[v1alpha1.RepairChain](ctx, cluster, "repairchains")
	out = append(out, unread...)
	for _, c := range chains {
		if r, bad := timeline.RefusedBy(v1alpha1.ChainKind, c.Name, c.Status.Conditions); bad {
			out = append(out, r)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	templates, unread, err := listed[v1alpha1.RepairTemplate](ctx, cluster, "repairtemplates")
	out = append(out, unread...)
	for _, t := range templates {
		if r, bad := timeline.RefusedBy(v1alpha1.TemplateKind, t.Name, t.Status.Conditions); bad {
			out = append(out, r)
		}
	}
	return runs, out, err
}

// listed are the objects of a kind of chains, and those that cannot be decoded; a cluster
// that does not know the kind has none, whether the caller may list it or not.
func listed[T any](ctx context.Context, cluster *kube.Client, resource string) (out []T, unread []timeline.Refused, err error) {
	kind := v1alpha1.GroupVersion.WithResource(resource)
	for next := ""; ; {
		list, err := cluster.Dynamic.Resource(kind).List(ctx, metav1.ListOptions{Limit: pageOf, Continue: next})
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) && !served(cluster, kind) {
			return nil, nil, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("listing %s: %w", resource, err)
		}
		for _, x := range list.Items {
			var one T
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(x.Object, &one); err != nil {
				unread = append(unread, timeline.Refused{Kind: x.GetKind(), Name: x.GetName(), Message: "it cannot be decoded: " + err.Error()})
				continue
			}
			out = append(out, one)
		}
		if next = list.GetContinue(); next == "" {
			return out, unread, nil
		}
	}
}
