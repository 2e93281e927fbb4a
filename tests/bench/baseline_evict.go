package bench

import (
	"context"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nvidia/nvsentinel/tests/fleet"
)

// evictionsAtOnce is the drainer's default of evictions in flight.
const evictionsAtOnce = 128

// evictBaseline asks for the eviction of every pod, as many at once as the drainer.
func evictBaseline(ctx context.Context, client kubernetes.Interface, pods []string) error {
	return atOnce(len(pods), evictionsAtOnce, func(i int) error {
		return client.PolicyV1().Evictions(fleet.UserNamespace).Evict(ctx, &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: pods[i], Namespace: fleet.UserNamespace},
		})
	})
}
