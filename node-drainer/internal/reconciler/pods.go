package reconciler

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/internal/eviction"
	"github.com/nvidia/nvsentinel/internal/kube"
)

// pack keeps of a pod its eviction.Facts, without those that Packed itself has: with its
// version among the bytes they would differ after every write, whatever was written. Of a
// pod that no policy takes off its node, as most of a cluster's are, it keeps the name: it
// is not among its node's pods, until it becomes another.
func pack(pod *corev1.Pod) (*kube.Packed, error) {
	p := &kube.Packed{Namespace: pod.Namespace, Name: pod.Name, Version: pod.ResourceVersion}
	if eviction.Stays(pod) {
		return p, nil
	}
	facts := eviction.Facts(pod)
	facts.Namespace, facts.Name, facts.ResourceVersion, facts.Spec.NodeName = "", "", "", ""
	raw, err := facts.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encoding pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	p.Node, p.Raw = pod.Spec.NodeName, raw
	return p, nil
}

// unpack is the eviction.Facts of the pod that was packed.
func unpack(p *kube.Packed) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := pod.Unmarshal(p.Raw); err != nil {
		return nil, fmt.Errorf("decoding pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	pod.Namespace, pod.Name, pod.ResourceVersion, pod.Spec.NodeName = p.Namespace, p.Name, p.Version, p.Node
	return pod, nil
}

// podChanged reports whether a decision could see a difference. Equal facts have equal
// bytes, so that the many updates that mean nothing to drains cost no decoding.
func podChanged(a, b *kube.Packed) bool { return a.Node != b.Node || !bytes.Equal(a.Raw, b.Raw) }

func nodeOfPod(obj any) ([]string, error) {
	if pod, ok := obj.(*kube.Packed); ok && pod.Node != "" {
		return []string{pod.Node}, nil
	}
	return nil, nil
}

// Pods are the facts of the cached pods bound to a node, by namespace and name, without
// those that stay on it anyway.
func (c *Cluster) Pods(node string) ([]*corev1.Pod, error) {
	objects, err := c.pods.ByIndex(byNode, node)
	if err != nil {
		return nil, fmt.Errorf("listing pods of node %s from the cache: %w", node, err)
	}
	pods := make([]*corev1.Pod, 0, len(objects))
	for _, o := range objects {
		packed, ok := o.(*kube.Packed)
		if !ok {
			continue
		}
		pod, err := unpack(packed)
		if err != nil {
			return nil, err
		}
		pods = append(pods, pod)
	}
	sortPods(pods)
	return pods, nil
}

// LivePods are the pods bound to a node as the API server has them.
func (c *Cluster) LivePods(ctx context.Context, node string) ([]*corev1.Pod, error) {
	list, err := c.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: byNode + "=" + node})
	if err != nil {
		return nil, fmt.Errorf("listing pods of node %s: %w", node, err)
	}
	pods := make([]*corev1.Pod, 0, len(list.Items))
	for i := range list.Items {
		pods = append(pods, eviction.Facts(&list.Items[i]))
	}
	sortPods(pods)
	return pods, nil
}

func sortPods(pods []*corev1.Pod) {
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
}
