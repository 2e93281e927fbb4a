package journey

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

// lookAtGuard notes whether the guard went within the session, with its budget
// in place: only on a Node that was not Ready meanwhile does the API server let
// it go.
func (t *trip) lookAtGuard(ctx context.Context) error {
	return t.insist(ctx, "the guard's pod", func(ctx context.Context) error {
		node, err := t.fleet.Node(ctx, t.node)
		if err != nil {
			return err
		}
		faults, err := t.faults(ctx)
		if err != nil {
			return err
		}
		pod, err := t.fleet.Cluster.Client().CoreV1().Pods(fleet.UserNamespace).Get(ctx, t.guard, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			pod, err = nil, nil
		}
		t.evicted = err == nil && unreadySince(node, t.began) && takenWithin(pod, faults)
		return err
	})
}

// unreadySince says whether a Node's readiness changed after a moment.
func unreadySince(node *corev1.Node, at time.Time) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.LastTransitionTime.After(at)
		}
	}
	return false
}

// takenWithin says whether a pod was taken away, by the API server's clock and
// to its second, before the last of the faults was closed; nil is one that is
// gone.
func takenWithin(pod *corev1.Pod, faults []record.Record) bool {
	if pod == nil {
		return true
	}
	if pod.DeletionTimestamp == nil {
		return false
	}
	grace := time.Duration(0)
	if s := pod.DeletionGracePeriodSeconds; s != nil {
		grace = time.Duration(*s) * time.Second
	}
	taken := pod.DeletionTimestamp.Add(-grace)
	for _, r := range faults {
		for _, f := range r.Status.Faults {
			if f.ClearedTimestamp != nil && taken.Before(*f.ClearedTimestamp) {
				return true
			}
		}
	}
	return false
}
