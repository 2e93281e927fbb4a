package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodeclient"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// PatchNode applies mutate to a copy of before and sends the difference as one JSON
// patch (RFC 6902), which the API server applies only while the Node is as before in
// what was decided on: its uid, its machine and boot, its schedule, our marks of
// nodemark.FactAnnotations and FactLabels, and everything that the patch changes. What
// else is written meanwhile, as heartbeats and conditions, is nobody's loss. mutate sees
// and may change metadata and spec. Without a difference nothing is sent and before is
// returned. A Node that has changed in one of these, or is another one, is ErrConflict;
// one that is gone is ErrNodeDeleted.
func PatchNode(ctx context.Context, client kubernetes.Interface, before *corev1.Node, mutate func(*corev1.Node)) (*corev1.Node, error) {
	patch, err := nodePatch(before, mutate)
	if err != nil {
		return before, fmt.Errorf("computing the patch of node %s: %w", before.Name, err)
	}
	if patch == nil {
		return before, nil
	}
	after, err := client.CoreV1().Nodes().Patch(ctx, before.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsConflict(err) || TestFailed(err):
		return nil, fmt.Errorf("node %s: %w", before.Name, ErrConflict)
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w: %s", ErrNodeDeleted, before.Name)
	case err != nil:
		return nil, fmt.Errorf("patching node %s: %w", before.Name, err)
	}
	return after, nil
}

// TestFailed distinguishes the answer to a patch of which a test did not hold from that to a
// Node which would not be valid: the latter names its fields.
func TestFailed(err error) bool {
	status, ok := err.(apierrors.APIStatus)
	if !ok || status.Status().Reason != metav1.StatusReasonInvalid {
		return false
	}
	details := status.Status().Details
	return details == nil || len(details.Causes) == 0
}

// nodePatch is the JSON patch, or nil when mutate changed nothing.
func nodePatch(before *corev1.Node, mutate func(*corev1.Node)) ([]byte, error) {
	bare := &corev1.Node{ObjectMeta: before.ObjectMeta, Spec: before.Spec}
	bare.Status.NodeInfo = before.Status.NodeInfo
	bare.ManagedFields = nil // this and the rest of the status are most of a Node, and are not ours
	after := bare.DeepCopy()
	mutate(after)
	old, err := json.Marshal(bare)
	if err != nil {
		return nil, err
	}
	changed, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	operations, err := jsonpatch.CreatePatch(old, changed)
	if err != nil || len(operations) == 0 {
		return nil, err
	}
	var was map[string]any
	if err := json.Unmarshal(old, &was); err != nil {
		return nil, err
	}
	return json.Marshal(append(tests(was, operations), operations...))
}

// tests are the operations that fail the patch unless a Node is in every fact as it was.
func tests(was map[string]any, operations []jsonpatch.Operation) []jsonpatch.Operation {
	paths := []string{"/metadata/uid", "/spec/providerID", "/status/nodeInfo/systemUUID", "/status/nodeInfo/bootID", "/spec/unschedulable", taintsPath}
	for _, key := range nodemark.FactAnnotations() {
		paths = append(paths, "/metadata/annotations/"+pointerKey.Replace(key))
	}
	for _, key := range nodemark.FactLabels() {
		paths = append(paths, "/metadata/labels/"+pointerKey.Replace(key))
	}
	for _, o := range operations {
		if !strings.HasPrefix(o.Path, taintsPath+"/") {
			paths = append(paths, o.Path)
		}
	}
	var out []jsonpatch.Operation
	for _, path := range paths {
		path, value := valueAt(was, path)
		if value == nil {
			value = json.RawMessage("null") // test that there is none, too
		}
		if !slices.ContainsFunc(out, func(o jsonpatch.Operation) bool { return o.Path == path }) {
			out = append(out, jsonpatch.NewOperation("test", path, value))
		}
	}
	return out
}

// taintsPath is where the taints are; they are one fact, so that nothing below is tested.
const taintsPath = "/spec/taints"

// pointerKey writes a key as a part of a JSON pointer (RFC 6901).
var pointerKey = strings.NewReplacer("~", "~0", "/", "~1")

// keyPointer reads a part of a JSON pointer.
var keyPointer = strings.NewReplacer("~1", "/", "~0", "~")

// valueAt is the value at a JSON pointer, nil where there is none; where what would hold
// it is missing, that is what is missing.
func valueAt(document map[string]any, pointer string) (path string, value any) {
	for _, part := range strings.Split(pointer, "/")[1:] {
		path += "/" + part
		if value = document[keyPointer.Replace(part)]; value == nil {
			break
		}
		if below, ok := value.(map[string]any); ok {
			document = below
		}
	}
	return path, value
}

// ErrNodeDeleted means the API server is certain that the object does not exist. Any
// other error of a read leaves that unknown.
var ErrNodeDeleted = errors.New("node not found")

// ErrConflict means that the object is not the one that was read any more, or not in
// what was decided on: look again, decide again.
var ErrConflict = errors.New("changed by another client")

// ReadNode reads a Node from the API server itself. ErrNodeDeleted is certain absence.
func ReadNode(ctx context.Context, client kubernetes.Interface, name string) (*corev1.Node, error) {
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: %s", ErrNodeDeleted, name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading node %s: %w", name, err)
	}
	return node, nil
}

// NodeIdentity is the sighting of the machine that a Node object gives.
func NodeIdentity(node *corev1.Node) record.NodeIdentity { return nodeclient.Identity(node) }

// NodeReady reports whether the Node's Ready condition is True.
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
