package reconciler

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/internal/nodemark"
)

func TestSchedulable(t *testing.T) {
	gpu := corev1.Taint{Key: "gpu", Value: "bad", Effect: corev1.TaintEffectNoSchedule}
	evict := corev1.Taint{Key: "gpu", Value: "bad", Effect: corev1.TaintEffectNoExecute}
	prefer := corev1.Taint{Key: "gpu", Value: "bad", Effect: corev1.TaintEffectPreferNoSchedule}
	const list = `[{"key":"gpu","value":"bad","effect":"NoSchedule"},{"key":"gpu","value":"bad","effect":"NoExecute"},{"key":"gpu","value":"bad","effect":"PreferNoSchedule"}]`
	tests := []struct {
		name    string
		cordon  bool
		taints  []corev1.Taint
		applied string
		want    bool
	}{
		{"nothing", false, nil, "", true},
		{"cordoned", true, nil, "", false},
		{"our NoSchedule", false, []corev1.Taint{gpu}, list, false},
		{"our NoExecute", false, []corev1.Taint{evict}, list, false},
		{"our PreferNoSchedule keeps nothing off", false, []corev1.Taint{prefer}, list, true},
		{"a foreign taint", false, []corev1.Taint{{Key: "gpu", Value: "other", Effect: corev1.TaintEffectNoSchedule}}, list, true},
		{"a taint that no annotation lists", false, []corev1.Taint{gpu}, "", true},
		{"our taint was taken away", false, nil, list, true},
		{"a broken annotation", false, []corev1.Taint{gpu}, "{", true},
		{"a broken annotation on a cordoned node", true, []corev1.Taint{gpu}, "{", false},
		{"cordoned, taint taken", true, nil, list, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			node := &corev1.Node{}
			node.Spec.Unschedulable, node.Spec.Taints = tt.cordon, tt.taints
			if tt.applied != "" {
				node.Annotations = map[string]string{nodemark.QuarantineHealthEventAppliedTaints: tt.applied}
			}
			if got := NodeFacts(node).Schedulable; got != tt.want {
				t.Errorf("schedulable is %v, want %v", got, tt.want)
			}
		})
	}
}
