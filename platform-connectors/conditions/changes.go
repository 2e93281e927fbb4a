package conditions

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Changes returns the conditions to write so that the Node has the desired
// ones: those that are missing or differ in status, reason or message. The
// transition time moves only with the status. Nothing else on the Node counts.
func Changes(have, desired []corev1.NodeCondition, now time.Time) []corev1.NodeCondition {
	var out []corev1.NodeCondition
	for _, want := range desired {
		i := slices.IndexFunc(have, func(c corev1.NodeCondition) bool { return c.Type == want.Type })
		if i >= 0 && have[i].Status == want.Status && have[i].Reason == want.Reason && have[i].Message == want.Message {
			continue
		}
		want.LastHeartbeatTime = metav1.NewTime(now)
		want.LastTransitionTime = metav1.NewTime(now)
		if i >= 0 && have[i].Status == want.Status && !have[i].LastTransitionTime.IsZero() {
			want.LastTransitionTime = have[i].LastTransitionTime
		}
		out = append(out, want)
	}
	return out
}

// Faulty keeps the conditions that report a fault. It is what may be written
// while the set is not known to be complete: a fault that was seen stands, but
// what was not seen may be more than what was.
func Faulty(desired []corev1.NodeCondition) []corev1.NodeCondition {
	return slices.DeleteFunc(slices.Clone(desired), func(c corev1.NodeCondition) bool {
		return c.Status != corev1.ConditionTrue
	})
}
