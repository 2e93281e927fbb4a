package kube_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// realNode is a Node as a kubelet, feature discoveries and a network plugin write it.
func realNode(name string) *corev1.Node {
	labels := map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", "nvidia.com/gpu.present": "true"}
	for i := range 50 {
		labels[fmt.Sprintf("feature.node.kubernetes.io/cpu-cpuid.FEATURE%d", i)] = "true"
	}
	resources := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2097152Mi"), "nvidia.com/gpu": resource.MustParse("8")}
	var images []corev1.ContainerImage
	for i := range 50 {
		images = append(images, corev1.ContainerImage{Names: []string{fmt.Sprintf("example.com/training/framework-%d@sha256:%064d", i, i)}, SizeBytes: 1 << 30})
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, ResourceVersion: "1", Annotations: map[string]string{
			"csi.volume.kubernetes.io/nodeid": `{"csi.example.com":"` + name + `"}`,
			"nfd.example.com/feature-labels":  strings.Repeat("cpu-cpuid.FEATURE,", 50),
		}},
		Spec: corev1.NodeSpec{ProviderID: "example:///" + name, PodCIDRs: []string{"10.0.0.0/24"}},
		Status: corev1.NodeStatus{
			Capacity: resources, Allocatable: resources, Images: images,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status", LastTransitionTime: metav1.NewTime(time.Unix(1000, 0))}},
			NodeInfo:   corev1.NodeSystemInfo{MachineID: "m", SystemUUID: "s", BootID: "b", KernelVersion: "6.8.0", OSImage: "Ubuntu"},
		},
	}
}

// TestStrip: what is read from a cached Node stays, whichever is asked for.
func TestStrip(t *testing.T) {
	marked := realNode("gpu-1")
	nodemark.Label(marked, nodemark.StateLabel, "draining")
	marked.Annotations[nodemark.SessionAnnotation], marked.Annotations[nodemark.QuarantineHealthEvent] = "s1", "[]"
	marked.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	status := corev1.NodeStatus{
		Conditions: marked.Status.Conditions, NodeInfo: corev1.NodeSystemInfo{SystemUUID: "s", BootID: "b"},
	}
	for name, tt := range map[string]struct {
		strip               cache.TransformFunc
		node                *corev1.Node
		labels, annotations map[string]string
	}{
		"whole metadata": {kube.Strip, marked, marked.Labels, marked.Annotations},
		"marks": {
			kube.StripToMarks, marked, map[string]string{nodemark.StateLabel: "draining"},
			map[string]string{nodemark.SessionAnnotation: "s1", nodemark.QuarantineHealthEvent: "[]"},
		},
		"no marks: one of each stays": {
			kube.StripToMarks, realNode("gpu-2"), map[string]string{"feature.node.kubernetes.io/cpu-cpuid.FEATURE0": "true"},
			map[string]string{"csi.volume.kubernetes.io/nodeid": `{"csi.example.com":"gpu-2"}`},
		},
		"bare": {kube.StripToMarks, &corev1.Node{Status: status}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			node := tt.node.DeepCopy()
			for range 2 { // what is stripped already stays
				got, err := tt.strip(node)
				if err != nil || got != node {
					t.Fatalf("%v, another object %t", err, got != node)
				}
			}
			if diff := cmp.Diff(tt.labels, node.Labels); diff != "" {
				t.Error("labels (-want +got):", diff)
			}
			if diff := cmp.Diff(tt.annotations, node.Annotations); diff != "" {
				t.Error("annotations (-want +got):", diff)
			}
			if diff := cmp.Diff(tt.node.Spec.ProviderID, node.Spec.ProviderID); diff != "" || node.ManagedFields != nil {
				t.Error("provider id, or managed fields are left:", diff)
			}
			want := status
			want.Conditions = tt.node.Status.Conditions
			if diff := cmp.Diff(want, node.Status); diff != "" {
				t.Error("status (-want +got):", diff)
			}
		})
	}
}

// BenchmarkStrip measures what a cache takes for a Node.
func BenchmarkStrip(b *testing.B) {
	const nodes = 2000
	whole := func(x any) (any, error) { return x, nil }
	for name, strip := range map[string]cache.TransformFunc{"whole": whole, "Strip": kube.Strip, "StripToMarks": kube.StripToMarks} {
		b.Run(name, func(b *testing.B) {
			texts := make([][]byte, nodes)
			for i := range texts {
				text, err := realNode(fmt.Sprintf("gpu-%d", i)).Marshal()
				if err != nil {
					b.Fatal(err)
				}
				texts[i] = text
			}
			for b.Loop() {
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				kept := make([]any, nodes)
				for i, text := range texts {
					node := &corev1.Node{}
					if err := node.Unmarshal(text); err != nil {
						b.Fatal(err)
					}
					kept[i], _ = strip(node)
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/nodes, "B/node")
				runtime.KeepAlive(kept)
			}
		})
	}
}
