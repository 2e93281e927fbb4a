package reconciler

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/fault-quarantine/decision"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

func nodeView(node *corev1.Node) *decision.Node {
	if node == nil {
		return nil
	}
	m := nodemark.Read(node)
	v := &decision.Node{
		Identity: kube.NodeIdentity(node), Created: node.CreationTimestamp.Time, OptedOut: m.OptedOut,
		Session: m.Session, Released: m.Released != nodemark.NotReleased, LetGo: m.LetGo,
		Active: marks.Active(node), Unconfirmed: m.Unknown, Ended: m.Ended, RequiresRelease: m.RequiresRelease(), Unschedulable: node.Spec.Unschedulable,
		Taints: nodemark.Taints(node), Checks: map[string]decision.Check{},
	}
	for _, c := range node.Status.Conditions {
		v.Checks[string(c.Type)] = decision.Check{Faulty: c.Status == corev1.ConditionTrue, Since: c.LastTransitionTime.Time}
	}
	return v
}

// nodeValue is the Node as rule expressions see it: decoded JSON without status.
func nodeValue(node *corev1.Node) map[string]any {
	if node == nil {
		return nil
	}
	bare := node.DeepCopy()
	bare.Status = corev1.NodeStatus{}
	bare.ManagedFields = nil
	b, err := json.Marshal(bare)
	if err != nil {
		return nil
	}
	var value map[string]any
	if json.Unmarshal(b, &value) != nil {
		return nil
	}
	delete(value, "status")
	return value
}
