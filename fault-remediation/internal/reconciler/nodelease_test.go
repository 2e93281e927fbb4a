package reconciler_test

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/action"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/internal/retry"
)

// TestANodeOfAnotherRemediator: while somebody else has the node's lease no repair
// object is created; then the lease is held for as long as the object may work.
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
	again, why, parked := retry.AsPark(b.Handle(t.Context(), b.node))
	if rem := b.record("r1").Status.Remediation; !parked || again != 30*time.Second || !strings.Contains(why, "NodeHealthCheck-workers") || rem.Attempts[0].UID != "" {
		t.Errorf("parked %v for %s: %q, %+v", parked, again, why, rem)
	}
	if w := b.waiting("r1"); w == nil || w.Reason != string(decision.WaitLease) || !strings.Contains(w.Message, "NodeHealthCheck-workers") {
		t.Errorf("the record says that it waits for %+v", w)
	}
	held, err := leases.Get(t.Context(), nodelease.Name(b.node), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Leases.Release(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	b.parks(decision.WaitObject)
	b.onlyObject()
	held, err = leases.Get(t.Context(), nodelease.Name(b.node), metav1.GetOptions{})
	if err != nil || *held.Spec.HolderIdentity != "fault-remediation" || *held.Spec.LeaseDurationSeconds != 41*60 {
		t.Errorf("lease %+v, %v", held, err)
	}
}

// TestALeaseOfALongRepair: it is taken for 41 minutes at most, again while the object
// works, also by a service that has just started, and left to who has taken it since.
func TestALeaseOfALongRepair(t *testing.T) {
	b := newBench(t)
	actions := action.Default()
	restart := actions["RESTART_VM"]
	restart.UnknownTimeout = new(24 * time.Hour)
	actions["RESTART_VM"] = restart
	b.Repairs = compile(t, actions)
	b.fault("r1", record.ActionRestartVM)
	const namespace = "default"
	b.Leases = &nodelease.Claims{Client: b.Cluster.Clientset, Namespace: namespace, Clock: b.Clock}
	leases := b.Cluster.Clientset.CoordinationV1().Leases(namespace)
	t.Cleanup(func() {
		_ = leases.Delete(context.WithoutCancel(t.Context()), nodelease.Name(b.node), metav1.DeleteOptions{})
	})
	renewed := func() (string, time.Time) {
		t.Helper()
		held, err := leases.Get(t.Context(), nodelease.Name(b.node), metav1.GetOptions{})
		if err != nil || *held.Spec.LeaseDurationSeconds != 41*60 {
			t.Fatalf("lease %+v, %v", held, err)
		}
		return *held.Spec.HolderIdentity, held.Spec.RenewTime.Time
	}
	b.parks(decision.WaitObject)
	_, first := renewed()
	b.clock.Step(15 * time.Minute)
	b.parks(decision.WaitObject)
	if _, again := renewed(); !again.Equal(first) {
		t.Error("taken again although less than half of it is over")
	}
	b.clock.Step(15 * time.Minute)
	b.parks(decision.WaitObject)
	if _, again := renewed(); again.Sub(first) < 29*time.Minute {
		t.Errorf("taken at %s, and not again at half of it: %s", first, again)
	}
	b.clock.Step(2 * time.Hour) // nobody was there meanwhile
	node, err := kube.ReadNode(t.Context(), b.Cluster.Clientset, b.node)
	if err != nil {
		t.Fatal(err)
	}
	held, err := leases.Get(t.Context(), nodelease.Name(b.node), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Leases.Take(t.Context(), node, "NodeHealthCheck-workers", 41*time.Minute, held); err != nil {
		t.Fatal(err)
	}
	b.parks(decision.WaitObject)
	if holder, _ := renewed(); holder != "NodeHealthCheck-workers" {
		t.Errorf("the lease is %s's", holder)
	}
	b.Leases.Namespace = "not-there"
	b.clock.Step(30 * time.Minute)
	b.parks(decision.WaitObject) // and no error that would hold up what works
}
