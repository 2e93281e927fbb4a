package demo

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// write puts the fault's record and the Node before, during and after into
// files, without what beats by itself.
func (s *story) write(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("creating the evidence directory: %w", err)
	}
	for name, value := range map[string]any{
		"record.json": s.last.fault, "recovery.json": s.last.recovery,
		"node-before.json": calm(s.first), "node-during.json": calm(s.during), "node-after.json": calm(s.last.node),
	} {
		b, err := json.MarshalIndent(value, "", "  ")
		if err != nil {
			return fmt.Errorf("encoding %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), append(b, '\n'), 0o644); err != nil {
			return fmt.Errorf("writing the evidence: %w", err)
		}
	}
	return nil
}

func calm(node *corev1.Node) *corev1.Node {
	if node == nil {
		return nil
	}
	node = node.DeepCopy()
	node.ResourceVersion, node.ManagedFields = "", nil
	for i := range node.Status.Conditions {
		node.Status.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	return node
}
