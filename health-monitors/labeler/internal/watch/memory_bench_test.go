package watch

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

// BenchmarkPodCache reports what a pod takes in the heap, once in a cache.
func BenchmarkPodCache(b *testing.B) {
	fill(b, "B/pod", slimPod, func(i int) any { return arrivedPod(b, i) }, func(c *Caches) cache.Store { return c.dcgm[0].GetStore() })
}

// BenchmarkNodeCache reports what a Node takes.
func BenchmarkNodeCache(b *testing.B) {
	fill(b, "B/node", packNode, func(i int) any { return arrivedNode(b, i) }, func(c *Caches) cache.Store { return c.nodes.GetStore() })
}

// fill puts objects into a cache, and reports how much the heap has grown for each.
func fill(b *testing.B, unit string, transform cache.TransformFunc, arrived func(int) any, of func(*Caches) cache.Store) {
	const objects = 10_000
	heap := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for b.Loop() {
		c, before := NewCaches(fake.NewClientset(), Sources{Namespaces: []string{"gpu-operator"}, DCGM: "nvidia-dcgm", Driver: "driver"}), heap()
		for i := range objects {
			x, err := transform(arrived(i))
			if err != nil {
				b.Fatal(err)
			}
			if err := of(c).Add(x); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric((heap()-before)/objects, unit)
		runtime.KeepAlive(c)
	}
}

// arrivedPod is a pod of 4 KB as a watch brings it, one on each node: no string of it is
// another pod's too.
func arrivedPod(b *testing.B, i int) *corev1.Pod {
	sent, got := running(), &corev1.Pod{}
	sent.Name, sent.UID, sent.ResourceVersion = fmt.Sprintf("nvidia-dcgm-%012x", i), types.UID(fmt.Sprintf("%036d", i)), fmt.Sprint(1_000_000+i)
	sent.Spec.NodeName = fmt.Sprintf("gpu-%d", i)
	for k := range sent.Spec.Containers {
		sent.Spec.Containers[k].Image = "nvcr.io/nvidia/cloud-native/dcgm:4.5.2-1-ubuntu22.04"
		for v := range 25 {
			sent.Spec.Containers[k].Env = append(sent.Spec.Containers[k].Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", v), Value: strings.Repeat("v", 50)})
		}
	}
	raw, err := sent.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	if err := got.Unmarshal(raw); err != nil {
		b.Fatal(err)
	}
	return got
}

// arrivedNode is a Node of a GPU machine, of 13 KB, as a watch brings it.
func arrivedNode(b *testing.B, i int) *corev1.Node {
	sent, got := counted(), &corev1.Node{}
	sent.Name, sent.UID, sent.ResourceVersion = fmt.Sprintf("gpu-%d", i), types.UID(fmt.Sprintf("%036d", i)), fmt.Sprint(1_000_000+i)
	for k := range 50 {
		sent.Labels[fmt.Sprintf("feature.node.kubernetes.io/cpu-cpuid.FEATURE%d", k)] = "true"
		sent.Status.Images = append(sent.Status.Images, corev1.ContainerImage{Names: []string{strings.Repeat("d", 110), strings.Repeat("d", 50)}, SizeBytes: 1 << 30})
	}
	sent.Annotations["nfd.node.kubernetes.io/feature-labels"] = strings.Repeat("cpu-cpuid.FEATURE,", 40)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage, "vpc.amazonaws.com/efa"} {
		sent.Status.Capacity[name], sent.Status.Allocatable[name] = resource.MustParse("192"), resource.MustParse("192")
	}
	for _, c := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		sent.Status.Conditions = append(sent.Status.Conditions, corev1.NodeCondition{Type: c, Status: corev1.ConditionFalse, LastHeartbeatTime: metav1.Now(), Message: "kubelet is well"})
	}
	raw, err := sent.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	if err := got.Unmarshal(raw); err != nil {
		b.Fatal(err)
	}
	return got
}
