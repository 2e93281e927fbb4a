package kubelet_test

import (
	"context"
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nvidia/nvsentinel/internal/kubelet"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func node(heartbeat time.Time) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, LastHeartbeatTime: metav1.NewTime(start)},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(heartbeat)},
	}}}
}

func leaseOf(renewed time.Time, seconds int32) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "n1"},
		Spec:       coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(renewed)), LeaseDurationSeconds: new(seconds)},
	}
}

func TestRead(t *testing.T) {
	bare := leaseOf(start, 0)
	bare.Spec = coordinationv1.LeaseSpec{}
	for name, tt := range map[string]struct {
		objects []runtime.Object
		node    *corev1.Node
		want    kubelet.Beat
	}{
		"a Lease":                       {[]runtime.Object{leaseOf(start.Add(time.Microsecond), 40)}, node(start), kubelet.Beat{Node: "u1", Value: "2026-03-01T12:00:00.000001Z", Within: time.Minute}},
		"a Lease that is renewed often": {[]runtime.Object{leaseOf(start, 8)}, node(start), kubelet.Beat{Node: "u1", Value: "2026-03-01T12:00:00Z", Within: time.Minute}},
		"a Lease that lasts":            {[]runtime.Object{leaseOf(start, 120)}, node(start), kubelet.Beat{Node: "u1", Value: "2026-03-01T12:00:00Z", Within: 3 * time.Minute}},
		"a Lease for ever":              {[]runtime.Object{leaseOf(start, 1<<30)}, node(start), kubelet.Beat{Node: "u1", Value: "2026-03-01T12:00:00Z", Within: 10 * time.Minute}},
		"a Lease without times":         {[]runtime.Object{bare}, node(start), kubelet.Beat{Node: "u1", Within: time.Minute}},
		"no Lease":                      {nil, node(start.Add(time.Second)), kubelet.Beat{Node: "u1", Value: "2026-03-01T12:00:01Z", Within: 10 * time.Minute}},
		"neither":                       {nil, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1"}}, kubelet.Beat{Node: "u1", Within: 10 * time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := kubelet.Read(t.Context(), fake.NewClientset(tt.objects...), tt.node)
			if err != nil || got != tt.want {
				t.Errorf("Read = %+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
}

// TestFailedReadIsUnknown: only a true NotFound is absence.
func TestFailedReadIsUnknown(t *testing.T) {
	client := fake.NewClientset(leaseOf(start, 40))
	away := errors.New("the API server is away")
	fails := false
	client.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return fails, nil, away })
	var w kubelet.Watches
	look := func(after time.Duration) (kubelet.Liveness, error) {
		return w.Poll(context.Background(), client, node(start), start.Add(after))
	}
	if liveness, err := look(0); err != nil || liveness.State != kubelet.Unknown {
		t.Errorf("first look: %+v, %v", liveness, err)
	}
	fails = true
	if liveness, err := look(50 * time.Second); !errors.Is(err, away) || liveness.State != kubelet.Unknown {
		t.Errorf("failed look: %+v, %v", liveness, err)
	}
	fails = false
	if liveness, err := look(time.Minute); err != nil || liveness.State != kubelet.Silent {
		t.Errorf("the same value after a minute: %+v, %v", liveness, err)
	}
	w.Forget("n1")
	if liveness, err := look(time.Minute); err != nil || liveness.State != kubelet.Unknown {
		t.Errorf("after it was forgotten: %+v, %v", liveness, err)
	}
}
