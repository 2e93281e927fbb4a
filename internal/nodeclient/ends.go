package nodeclient

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// Ends tells when faults of a Node may have ended without a recovery that goes
// through its connector. It is not safe for concurrent use.
type Ends struct{ node *corev1.Node }

// See takes the Node as it is now, and says whether since the last time its session
// is over or another, somebody uncordoned it, or asked to have a fault cleared.
func (e *Ends) See(node *corev1.Node) bool {
	if node == nil {
		return false
	}
	before := e.node
	e.node = node
	return before != nil && ended(before, node)
}

func ended(before, now *corev1.Node) bool {
	session := nodemark.Session(before)
	if session != "" && session != nodemark.Session(now) ||
		before.Spec.Unschedulable && !now.Spec.Unschedulable {
		return true
	}
	for key, value := range now.Annotations {
		if strings.HasPrefix(key, nodemark.ClearPrefix) && before.Annotations[key] != value {
			return true
		}
	}
	return false
}
