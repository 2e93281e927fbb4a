package decision

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// After is the view that follows a step whose effects have all come true at
// once: its label and statuses are written, its pods gone. The world may do
// otherwise; who does more than wait afterwards reads again.
func After(v View, s Step, now time.Time) View {
	if s.Label != "" {
		v.Node.State = s.Label
	}
	v.Pods = slices.DeleteFunc(slices.Clone(v.Pods), func(p *corev1.Pod) bool { return slices.Contains(s.Pods, p) })
	v.Records = slices.Clone(v.Records)
	for i := range v.Records {
		v.Records[i].Status, _ = s.Updated(v.Records[i], now)
	}
	return v
}
