package lease_test

import (
	"context"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/lease"
	"github.com/nvidia/nvsentinel/internal/localcluster"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

// TestElectOnARealAPIServer leads twice, one after the other: the lease is
// named after service and task, held while the work runs and free after it.
func TestElectOnARealAPIServer(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	cfg := lease.Default()
	cfg.Enabled, cfg.Namespace = true, cluster.Namespace(t)
	cfg.Duration, cfg.RenewDeadline = 10*time.Minute, 5*time.Minute // no slow machine loses it
	leases := cluster.Client().CoordinationV1().Leases(cfg.Namespace)
	holders := map[string]bool{}
	for range 2 {
		led := func(ctx context.Context) error {
			held, err := leases.Get(ctx, "svc-the-work", metav1.GetOptions{})
			if err != nil {
				return err
			}
			holders[*held.Spec.HolderIdentity] = true
			moving, release := lease.Fence(ctx)
			defer release()
			if _, bounded := moving.Deadline(); bounded || moving.Err() != nil {
				t.Errorf("the moving fence is bounded %v, %v", bounded, moving.Err())
			}
			fence, cancel := lease.FenceCall(ctx)
			defer cancel()
			if end, bounded := fence.Deadline(); !bounded || time.Until(end) > cfg.RenewDeadline || fence.Err() != nil {
				t.Errorf("the fence ends at %s, bounded %v, %v", end, bounded, fence.Err())
			}
			return nil
		}
		r := daemon.RunForTest(t, "svc", struct{}{}, func(_ context.Context, d *daemon.Daemon, _ struct{}) error {
			cfg.Lead(d, cluster.AdminKubeconfig(), "the work", led)
			return nil
		})
		if code := r.Wait(); code != 0 {
			t.Fatalf("exit code %d", code)
		}
		free, err := leases.Get(t.Context(), "svc-the-work", metav1.GetOptions{})
		if err != nil || *free.Spec.HolderIdentity != "" {
			t.Errorf("after the work the lease is %+v, %v", free.Spec, err)
		}
	}
	if len(holders) != 2 {
		t.Errorf("two processes led as %v", holders)
	}
}
