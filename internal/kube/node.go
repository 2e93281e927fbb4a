package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodeclient"
)

// ErrGone means the API server is certain that the object does not exist. Any
// other error of a read leaves that unknown.
var ErrGone = errors.New("node is gone")

// ErrConflict means that the object is not the one that was read any more, or not in
// what was decided on: look again, decide again.
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

// NodeIdentity is the sighting of the machine that a Node object gives.
func NodeIdentity(node *corev1.Node) record.NodeIdentity { return nodeclient.Identity(node) }

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
