package scale

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// writers is how many objects are written at once.
const writers = 32

// furnish writes the nodes and, if wanted, their pods.
func (s *site) furnish(ctx context.Context, podsPerNode int) error {
	began := time.Now()
	for _, name := range []string{"gpu-operator", users} {
		_, err := s.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("making namespace %s: %w", name, err)
		}
	}
	s.o.log("writing %d nodes and %d pods", s.nodes, s.nodes*podsPerNode)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range s.nodes {
		group.Go(func() error { return s.furnishNode(ctx, i, podsPerNode) })
	}
	err := group.Wait()
	s.o.log("written after %s", time.Since(began).Round(time.Second))
	return err
}

func (s *site) furnishNode(ctx context.Context, i, pods int) error {
	if _, err := s.client.CoreV1().Nodes().Create(ctx, realNode(i), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("making node %s: %w", nodeName(i), err)
	}
	for j := range pods {
		pod := realPod(i, j)
		made, err := s.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("making pod %s: %w", pod.Name, err)
		}
		made.Status = running(made, time.Now())
		if _, err := s.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("making pod %s run: %w", pod.Name, err)
		}
	}
	return nil
}

// beat writes the status of each node as its kubelet does while nothing changes, one
// after the other, until ctx ends. What fails is beaten again a round later.
func (s *site) beat(ctx context.Context) {
	every := time.NewTicker(max(s.o.Sizes.Heartbeat/time.Duration(s.nodes), time.Millisecond))
	defer every.Stop()
	for order := rand.Perm(s.nodes); ; {
		for _, i := range order {
			select {
			case <-ctx.Done():
				return
			case <-every.C:
			}
			patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": healthy(time.Now())}})
			if err != nil {
				return // never: a literal of plain values
			}
			_, err = s.client.CoreV1().Nodes().Patch(ctx, nodeName(i), types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
			if err != nil && ctx.Err() == nil {
				s.o.log("a heartbeat failed: %v", err)
			}
		}
	}
}
