package repair_test

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/plan"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/internal/outcome"
)

// TestANodeOfAnotherRemediator: while somebody else has the node's lease no repair
// object is created; then the lease is taken for as long as the object may work.
func TestANodeOfAnotherRemediator(t *testing.T) {
	b := newBench(t)
	b.fault("r1", record.ActionRestartVM)
	const namespace = "default"
	b.Leases = &nodelease.Claims{Client: b.Cluster.Clientset, Namespace: namespace, Clock: b.Clock}
	leases := b.Cluster.Clientset.CoordinationV1().Leases(namespace)
	t.Cleanup(func() {
		_ = leases.Delete(context.WithoutCancel(t.Context()), nodelease.Name(b.node), metav1.DeleteOptions{})
	})
	node, err := kube.ReadNode(t.Context(), b.Cluster.Clientset, b.node)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Leases.Take(t.Context(), node, "NodeHealthCheck-workers", time.Hour, nil); err != nil {
		t.Fatal(err)
	}
	again, why, parked := outcome.AsPark(b.Handle(t.Context(), b.node))
	if rem := b.record("r1").Status.Remediation; !parked || again != time.Minute || !strings.Contains(why, "NodeHealthCheck-workers") || rem.Attempts[0].UID != "" {
		t.Errorf("parked %v for %s: %q, %+v", parked, again, why, rem)
	}
	held, err := leases.Get(t.Context(), nodelease.Name(b.node), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Leases.Release(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	b.parks(plan.WaitObject)
	b.onlyObject()
	held, err = leases.Get(t.Context(), nodelease.Name(b.node), metav1.GetOptions{})
	if err != nil || *held.Spec.HolderIdentity != "fault-remediation" || *held.Spec.LeaseDurationSeconds != 41*60 {
		t.Errorf("lease %+v, %v", held, err)
	}
}
