package reconciler_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/node-drainer/internal/reconciler"
)

// TestASuccessorOfTheSameNameIsNotHit: the pod that was decided on is gone, and
// another one bears its name.
func TestASuccessorOfTheSameNameIsNotHit(t *testing.T) {
	s := newStage(t)
	s.pod(localcluster.PodSpec{Name: "set-0"})
	pods := s.cluster.Client().CoreV1().Pods(s.ns)
	old, err := pods.Get(t.Context(), "set-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := pods.Delete(t.Context(), "set-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually(func() error {
		if _, err := pods.Get(t.Context(), "set-0", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("the old pod is still there"), err)
		}
		return nil
	})
	s.pod(localcluster.PodSpec{Name: "set-0"})
	for _, take := range []func() error{
		func() error { return reconciler.Evict(t.Context(), s.cluster.Client(), old, time.Minute) },
		func() error { return reconciler.Remove(t.Context(), s.cluster.Client(), old) },
	} {
		if err := take(); !apierrors.IsConflict(err) {
			t.Errorf("taking away the pod that is gone: %v, want a conflict", err)
		}
	}
	if _, going := s.leaving(s.ns, "set-0"); going {
		t.Error("the successor was taken away")
	}
}

// TestNodesAreDrainedInParallel: one node whose pod never goes delays no other.
func TestNodesAreDrainedInParallel(t *testing.T) {
	const nodes, podsEach = 12, 4
	s := newStage(t)
	s.pod(localcluster.PodSpec{Name: "hangs", Annotations: map[string]string{localcluster.TerminationAnnotation: "never"}})
	s.fault("r0", "r0")
	s.mark("r0")
	s.wantEviction("r0", record.EvictionInProgress)

	first := s.node
	names := make([]string, nodes)
	var wg sync.WaitGroup
	for i := range nodes {
		names[i] = fmt.Sprintf("%s-%d", first, i)
		if _, err := s.cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: names[i]}); err != nil {
			t.Fatal(err)
		}
		for j := range podsEach {
			wg.Go(func() {
				_, err := s.cluster.AddPod(t.Context(), localcluster.PodSpec{Namespace: s.ns, Name: fmt.Sprintf("%s-%d", names[i], j), Node: names[i]})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	for i, name := range names {
		s.node = name
		s.fault(fmt.Sprintf("r%d", i+1), fmt.Sprintf("r%d", i+1))
		s.mark(fmt.Sprintf("r%d", i+1))
	}
	for i := range names {
		s.wantEviction(fmt.Sprintf("r%d", i+1), record.EvictionSucceeded)
	}
	s.node = first
	if got := s.eviction("r0"); got.Status != record.EvictionInProgress {
		t.Errorf("the node that hangs is %q", got.Status)
	}
	for _, name := range names {
		if err := s.cluster.DeleteNode(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
}

// TestALabelIsNotWrittenOverAChangedNode: the label goes under the version of
// the Node that the step was decided on.
func TestALabelIsNotWrittenOverAChangedNode(t *testing.T) {
	s := newStage(t)
	s.mark("r1")
	stale, err := kube.ReadNode(t.Context(), s.cluster.Client(), s.node)
	if err != nil {
		t.Fatal(err)
	}
	s.release()
	_, err = kube.PatchNode(t.Context(), s.cluster.Client(), stale, func(n *corev1.Node) {
		n.Labels[nodemark.StateLabel] = string(nodemark.Draining)
	})
	if err == nil {
		t.Error("the label was written on a Node that was released meanwhile")
	}
	s.wantLabel("")
}
