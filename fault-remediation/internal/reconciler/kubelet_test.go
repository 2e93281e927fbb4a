package reconciler_test

import (
	"context"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/kubelet"
)

// renew writes the Lease of the node's kubelet, as the kubelet does.
func (b *bench) renew() {
	b.t.Helper()
	leases := b.cluster.Client().CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Get(b.t.Context(), b.node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: b.node}, Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: new(int32(40))}}
		lease, err = leases.Create(b.t.Context(), lease, metav1.CreateOptions{})
		b.t.Cleanup(func() { _ = leases.Delete(context.Background(), b.node, metav1.DeleteOptions{}) })
	}
	if err != nil {
		b.t.Fatalf("the Lease of the kubelet: %v", err)
	}
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = &b.node, new(metav1.NewMicroTime(b.clock.Now()))
	if _, err := leases.Update(b.t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		b.t.Fatalf("renewing the Lease of the kubelet: %v", err)
	}
}

// timedOut is a node whose reboot has had its time, and which reports Ready under its old
// boot all the while.
func timedOut(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	b.renew()
	b.fault("r1", record.ActionRestartVM)
	b.parks(decision.WaitObject)
	b.clock.Step(20 * time.Second)
	b.renew() // the machine is still going down
	b.clock.Step(25 * time.Minute)
	b.finish(b.onlyObject(), "NodeReady", "False", "Timeout", "boot-1")
	b.parks(decision.WaitBackoff)
	b.clock.Step(time.Minute)
	return b
}

// TestADeadKubeletIsNotReady: a machine was asked to reboot and is off or in mid-boot, and
// nobody sets its Ready condition to Unknown. It is not rebooted a second time, and a
// person is asked when the machine's time is over.
func TestADeadKubeletIsNotReady(t *testing.T) {
	b := timedOut(t)
	for at := time.Duration(0); at < 13*time.Minute; at += kubelet.PollInterval {
		b.parks(decision.WaitReady)
		b.clock.Step(kubelet.PollInterval)
	}
	b.onlyObject()
	b.clock.Step(time.Minute)
	b.settles()
	b.onlyObject()
	b.shows("r1", "false ManualInterventionRequired(NeverReady) [1 Unhealthy uid=true sent=true] label=remediation-failed")
}

// TestALiveKubeletIsReady: a kubelet that renews its Lease under the old boot shows that the
// signal did not take.
func TestALiveKubeletIsReady(t *testing.T) {
	b := timedOut(t)
	b.parks(decision.WaitReady)
	b.clock.Step(kubelet.PollInterval)
	b.renew()
	b.parks(decision.WaitObject)
	b.shows("r1", "null () [1 Unhealthy uid=true sent=true] [2 Unknown uid=true sent=true] label=remediating")
}

// TestAHeartbeatIsALiveKubelet, where there is no Lease.
func TestAHeartbeatIsALiveKubelet(t *testing.T) {
	b := newBench(t)
	b.fault("r1", record.ActionRestartVM)
	b.parks(decision.WaitObject)
	b.finish(b.onlyObject(), "NodeReady", "False", "Timeout", "boot-1")
	b.parks(decision.WaitBackoff)
	b.clock.Step(time.Minute)
	b.parks(decision.WaitReady)
	b.clock.Step(kubelet.PollInterval)
	b.beat()
	b.parks(decision.WaitObject)
}

// beat reports the node's status once more, as its kubelet does.
func (b *bench) beat() {
	b.t.Helper()
	b.patchNode(`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","lastHeartbeatTime":"`+b.clock.Now().UTC().Format(time.RFC3339)+`"}]}}`, "status")
}
