package triage

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
)

// Health of a node in the eyes of a check.
type Health string

// The three states of a node.
const (
	// Healthy: none of the unhealthy conditions is there.
	Healthy Health = "healthy"
	// Soon: one is there, and not yet for long enough. Such a node is not counted
	// as healthy, and nothing is done about it.
	Soon Health = "soon"
	// Unhealthy: one has been there for longer than its duration.
	Unhealthy Health = "unhealthy"
)

// Finding is the result of Classify for a node.
type Finding struct {
	Health Health
	// Type and Status of the condition that decided, unless the node is healthy.
	Type   corev1.NodeConditionType
	Status corev1.ConditionStatus
	// In is after how long a node that is unhealthy soon may be.
	In time.Duration
}

// settle is how long after a moment a pass looks for what was due at it.
const settle = time.Second

// defaultConditions make a node unhealthy where a check names none.
func defaultConditions() []v1alpha1.UnhealthyCondition {
	wait := metav1.Duration{Duration: 5 * time.Minute}
	return []v1alpha1.UnhealthyCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Duration: wait},
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Duration: wait},
	}
}

// Classify evaluates a node by its conditions: any one of rules is enough. Without
// rules the default ones hold.
func Classify(conditions []corev1.NodeCondition, rules []v1alpha1.UnhealthyCondition, now time.Time) Finding {
	if len(rules) == 0 {
		rules = defaultConditions()
	}
	found := Finding{Health: Healthy}
	for _, rule := range rules {
		for _, c := range conditions {
			if c.Type != rule.Type || c.Status != rule.Status {
				continue
			}
			left := c.LastTransitionTime.Add(rule.Duration.Duration).Sub(now)
			if left < 0 {
				return Finding{Health: Unhealthy, Type: c.Type, Status: c.Status}
			}
			if found.Health == Healthy || left < found.In {
				found = Finding{Health: Soon, Type: c.Type, Status: c.Status, In: left}
			}
		}
	}
	return found
}

// IsControlPlane reports whether a node is one of the control plane.
func IsControlPlane(n *corev1.Node) bool {
	_, is := n.Labels["node-role.kubernetes.io/control-plane"]
	_, was := n.Labels["node-role.kubernetes.io/master"]
	return is || was
}
