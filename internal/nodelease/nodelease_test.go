package nodelease_test

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

func claims(t *testing.T) (nodelease.Claims, *testkit.Clock) {
	t.Helper()
	cluster, clock := localcluster.ForTest(t, localcluster.Options{}), testkit.NewClock()
	return nodelease.Claims{Client: cluster.Client(), Namespace: cluster.Namespace(t), Clock: clock}, clock
}

func node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid"}}
}

func TestLeaseLifecycle(t *testing.T) {
	c, clock := claims(t)
	ctx, n := t.Context(), node("gpu-1")
	read := c.Client.CoordinationV1().Leases(c.Namespace)
	if err := c.Take(ctx, n, "one", time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	first, err := read.Get(ctx, "node-gpu-1", metav1.GetOptions{})
	if err != nil || *first.Spec.HolderIdentity != "one" || *first.Spec.LeaseDurationSeconds != 60 || first.OwnerReferences[0].UID != "uid" {
		t.Fatalf("lease %+v, %v", first, err)
	}
	if taken, is := nodelease.Taken(c.Take(ctx, n, "two", time.Minute, nil)); !is || taken.Holder != "one" {
		t.Errorf("a second holder: %v", taken)
	}
	clock.Step(30 * time.Second)
	if err := c.Renew(ctx, 2*time.Minute, first); err != nil {
		t.Error(err)
	}
	clock.Step(119 * time.Second)
	if _, is := nodelease.Taken(c.Take(ctx, n, "two", time.Minute, first)); !is {
		t.Error("a lease that was renewed since it was seen is taken away")
	}
	if err := c.Release(ctx, first); err != nil {
		t.Error(err)
	}
	if _, err := read.Get(ctx, "node-gpu-1", metav1.GetOptions{}); err != nil {
		t.Errorf("a lease that changed since it was seen was dropped: %v", err)
	}
	clock.Step(2 * time.Second)
	if err := c.Take(ctx, n, "two", time.Minute, nil); err != nil {
		t.Errorf("a lease that has run out: %v", err)
	}
	second, err := read.Get(ctx, "node-gpu-1", metav1.GetOptions{})
	if err != nil || *second.Spec.HolderIdentity != "two" || *second.Spec.LeaseTransitions != 1 || !second.Spec.AcquireTime.Time.Equal(clock.Now()) {
		t.Errorf("lease %+v, %v", second, err)
	}
	if err := c.Drop(ctx, "gpu-1", "one"); err != nil {
		t.Error(err)
	}
	if _, err := read.Get(ctx, "node-gpu-1", metav1.GetOptions{}); err != nil {
		t.Errorf("somebody else's lease was dropped: %v", err)
	}
	for range 2 {
		if err := c.Drop(ctx, "gpu-1", "two"); err != nil {
			t.Error(err)
		}
	}
	if _, err := read.Get(ctx, "node-gpu-1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after its release: %v", err)
	}
}

// TestAThousandRaces: of two who want a node at once, one gets it, whatever either has
// seen before.
func TestAThousandRaces(t *testing.T) {
	all, _ := claims(t)
	var lanes sync.WaitGroup
	for lane := range 8 {
		lanes.Go(func() {
			c, clock, n := all, testkit.NewClock(), node(fmt.Sprintf("race-%d", lane))
			c.Clock = clock
			leases := c.Client.CoordinationV1().Leases(c.Namespace)
			for round := range 125 {
				seen, err := leases.Get(t.Context(), nodelease.Name(n.Name), metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					seen = nil
				} else if err != nil {
					t.Error(err)
					return
				}
				clock.Step(time.Hour)
				errs := make([]error, 2)
				var both sync.WaitGroup
				for i := range errs {
					// A new name in each round: the lease of the round before has run out.
					both.Go(func() { errs[i] = c.Take(t.Context(), n, fmt.Sprintf("%d-%d", round, i), time.Minute, seen) })
				}
				both.Wait()
				_, lost0 := nodelease.Taken(errs[0])
				_, lost1 := nodelease.Taken(errs[1])
				if won0, won1 := errs[0] == nil, errs[1] == nil; won0 == won1 || lost0 == won0 || lost1 == won1 {
					t.Errorf("round %d: %v and %v", round, errs[0], errs[1])
				}
				if round%3 != 0 {
					if now, err := leases.Get(t.Context(), nodelease.Name(n.Name), metav1.GetOptions{}); err == nil {
						_ = c.Release(t.Context(), now)
					}
				}
			}
		})
	}
	lanes.Wait()
}
