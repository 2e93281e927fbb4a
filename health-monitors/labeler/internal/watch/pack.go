package watch

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/health-monitors/labeler/labeling"
	"github.com/nvidia/nvsentinel/internal/kube"
)

// packNode keeps of a Node what is read, and what an expression may read, without its
// version: equal bytes mean that nothing of it has changed.
func packNode(x any) (any, error) {
	node, ok := x.(*corev1.Node)
	if !ok {
		return x, nil
	}
	m := node.ObjectMeta
	slim := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: m.Name, UID: m.UID, Labels: m.Labels, Annotations: m.Annotations, CreationTimestamp: m.CreationTimestamp},
		Spec:       node.Spec,
		Status:     corev1.NodeStatus{Capacity: node.Status.Capacity, Allocatable: node.Status.Allocatable, NodeInfo: node.Status.NodeInfo},
	}
	if kube.NodeReady(node) {
		slim.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	}
	raw, err := slim.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encoding node %s: %w", m.Name, err)
	}
	return &kube.Packed{Name: m.Name, Version: m.ResourceVersion, Node: m.Name, Raw: raw}, nil
}

func unpackNode(p *kube.Packed) (*corev1.Node, error) {
	node := &corev1.Node{}
	if err := node.Unmarshal(p.Raw); err != nil {
		return nil, fmt.Errorf("decoding node %s: %w", p.Name, err)
	}
	node.ResourceVersion = p.Version
	return node, nil
}

// packSlice keeps all of a ResourceSlice but its version, and who wrote which field.
func packSlice(x any) (any, error) {
	slice, ok := x.(*resourcev1.ResourceSlice)
	if !ok {
		return x, nil
	}
	p := &kube.Packed{Name: slice.Name, Version: slice.ResourceVersion}
	if slice.Spec.NodeName != nil {
		p.Node = *slice.Spec.NodeName
	}
	slim := *slice
	slim.ResourceVersion, slim.ManagedFields = "", nil
	var err error
	if p.Raw, err = slim.Marshal(); err != nil {
		return nil, fmt.Errorf("encoding ResourceSlice %s: %w", slice.Name, err)
	}
	return p, nil
}

func unpackSlice(p *kube.Packed) (*resourcev1.ResourceSlice, error) {
	slice := &resourcev1.ResourceSlice{}
	if err := slice.Unmarshal(p.Raw); err != nil {
		return nil, fmt.Errorf("decoding ResourceSlice %s: %w", p.Name, err)
	}
	slice.ResourceVersion = p.Version
	return slice, nil
}

// pod is what is kept of a pod: what is read, and what a cache asks for.
type pod struct {
	kube.Packed // no bytes
	is          labeling.Pod
	ended       bool // runs no more
	// daemon: a DaemonSet's controller owns it. The operators' pods are such; a kubelet
	// makes others for its own node, and so does anybody with rights in the namespace.
	daemon bool
}

func slimPod(x any) (any, error) {
	p, ok := x.(*corev1.Pod)
	if !ok {
		return x, nil
	}
	slim := &pod{
		Packed: kube.Packed{Namespace: p.Namespace, Name: p.Name, Version: p.ResourceVersion, Node: p.Spec.NodeName},
		is:     labeling.Pod{Ready: podReady(p), Ending: p.DeletionTimestamp != nil, Created: p.CreationTimestamp.Time},
		ended:  p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		daemon: ofDaemonSet(p),
	}
	for _, c := range p.Spec.Containers {
		slim.is.Images = append(slim.is.Images, c.Image)
	}
	return slim, nil
}

func ofDaemonSet(p *corev1.Pod) bool {
	owner := metav1.GetControllerOf(p)
	return owner != nil && owner.Kind == "DaemonSet" && strings.HasPrefix(owner.APIVersion, "apps/")
}

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
