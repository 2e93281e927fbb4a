package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// ErrGone means the API server is certain that the object does not exist. Any
// other error of a read leaves that unknown.
var ErrGone = errors.New("node is gone")

// ErrConflict means that the object is not the one that was read any more: look
// again, decide again.
var ErrConflict = errors.New("changed meanwhile")

// ReadNode reads a Node from the API server itself. ErrGone is certain absence.
func ReadNode(ctx context.Context, client kubernetes.Interface, name string) (*corev1.Node, error) {
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: %s", ErrGone, name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading node %s: %w", name, err)
	}
	return node, nil
}

// PatchNode applies mutate to a copy of before and sends the difference as one
// JSON merge patch under before's resourceVersion and uid; lists such as taints
// go whole. mutate sees and may change metadata and spec; there is no status.
// Without a difference nothing is sent and before is returned. A Node that has
// changed since, or is another one, is ErrConflict; one that is gone is ErrGone.
func PatchNode(ctx context.Context, client kubernetes.Interface, before *corev1.Node, mutate func(*corev1.Node)) (*corev1.Node, error) {
	patch, err := nodePatch(before, mutate)
	if err != nil || patch == nil {
		return before, err
	}
	after, err := client.CoreV1().Nodes().Patch(ctx, before.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsConflict(err):
		return nil, fmt.Errorf("node %s: %w", before.Name, ErrConflict)
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w: %s", ErrGone, before.Name)
	case err != nil:
		return nil, fmt.Errorf("patching node %s: %w", before.Name, err)
	}
	return after, nil
}

// nodePatch is the merge patch, or nil when mutate changed nothing.
func nodePatch(before *corev1.Node, mutate func(*corev1.Node)) ([]byte, error) {
	bare := &corev1.Node{ObjectMeta: before.ObjectMeta, Spec: before.Spec}
	bare.ManagedFields = nil // this and the status are most of a Node, and are not ours
	after := bare.DeepCopy()
	mutate(after)
	old, err := json.Marshal(bare)
	if err != nil {
		return nil, fmt.Errorf("encoding node %s: %w", before.Name, err)
	}
	changed, err := json.Marshal(after)
	if err != nil {
		return nil, fmt.Errorf("encoding node %s: %w", before.Name, err)
	}
	diff, err := jsonpatch.CreateMergePatch(old, changed)
	if err != nil {
		return nil, fmt.Errorf("computing the patch of node %s: %w", before.Name, err)
	}
	var patch map[string]any
	if err := json.Unmarshal(diff, &patch); err != nil {
		return nil, fmt.Errorf("computing the patch of node %s: %w", before.Name, err)
	}
	if len(patch) == 0 {
		return nil, nil
	}
	metadata, ok := patch["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
	}
	metadata["resourceVersion"], metadata["uid"] = before.ResourceVersion, before.UID
	patch["metadata"] = metadata
	return json.Marshal(patch)
}

// NodeIdentity is the sighting of the machine that a Node object gives.
func NodeIdentity(node *corev1.Node) record.NodeIdentity {
	return record.NodeIdentity{
		UID: string(node.UID), ProviderID: node.Spec.ProviderID,
		SystemUUID: node.Status.NodeInfo.SystemUUID, BootID: node.Status.NodeInfo.BootID,
	}
}

// NodeReady says whether the Node's Ready condition is True.
func NodeReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// NodeReadySince is when the Node's Ready condition changed last; zero when it
// is not reported.
func NodeReadySince(node *corev1.Node) time.Time {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.LastTransitionTime.UTC()
		}
	}
	return time.Time{}
}
