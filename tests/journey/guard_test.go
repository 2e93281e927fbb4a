package journey

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// TestAGuardThatWentWithinTheSession is seed 770020 of the soak: the API server
// was away for 92 s, the Node's Lease ran out, the guard was not Ready, and its
// eviction three seconds before the end of the session was let through.
func TestAGuardThatWentWithinTheSession(t *testing.T) {
	ended := time.Date(2026, 11, 22, 3, 1, 56, 493e6, time.UTC)
	grace := int64(30)
	at := func(taken time.Duration) *corev1.Pod {
		gone := metav1.NewTime(ended.Add(taken).Truncate(time.Second).Add(30 * time.Second))
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &gone, DeletionGracePeriodSeconds: &grace}}
	}
	faults := []record.Record{{Status: record.Status{Faults: []record.Fault{{ClearedTimestamp: &ended}}}}}
	for _, tt := range []struct {
		name string
		pod  *corev1.Pod
		want bool
	}{
		{"taken in the session", at(-2943 * time.Millisecond), true},
		{"taken after it", at(2 * time.Second), false},
		{"there", &corev1.Pod{}, false},
		{"gone before its budget was", nil, true},
	} {
		if got := takenWithin(tt.pod, faults); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
	for since, want := range map[time.Duration]bool{time.Minute: true, -time.Minute: false} {
		node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(ended.Add(since))},
		}}}
		if got := unreadySince(node, ended); got != want {
			t.Errorf("readiness changed %s after the story began: %t, want %t", since, got, want)
		}
	}
}
