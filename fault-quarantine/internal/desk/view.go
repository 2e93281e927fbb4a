package desk

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/ledger"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/store-client/store"
)

func nodeView(node *corev1.Node) *ledger.Node {
	if node == nil {
		return nil
	}
	return &ledger.Node{
		Identity: kube.NodeIdentity(node), Created: node.CreationTimestamp.Time, OptedOut: nodemark.OptedOut(node.Labels),
		Session: marks.Session(node), Released: marks.Released(node),
	}
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

// Backlog rings every node with unjudged, Held or open records.
func (d *Desk) Backlog(ctx context.Context, ring func(string)) error {
	for _, selector := range []record.Selector{record.BacklogOfNode(""), record.OpenOfNode("")} {
		after := int64(0)
		for {
			page, err := d.Store.List(ctx, store.Query{Selector: selector, After: after, Limit: 500})
			if err != nil {
				return fmt.Errorf("reading the backlog (%s): %w", selector.Name, err)
			}
			for _, r := range page {
				ring(r.Event.NodeName)
				after = r.Append
			}
			if len(page) < 500 {
				break
			}
		}
	}
	return nil
}
