package watch

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/nvidia/nvsentinel/internal/kube"
)

// counted is the Node n with all that is kept of one.
func counted(change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "n", UID: "u", ResourceVersion: "7", CreationTimestamp: began, Labels: map[string]string{"a": "b", "c": "d"}, Annotations: map[string]string{"e": "f"},
		},
		Spec: corev1.NodeSpec{ProviderID: "p", Unschedulable: true},
		Status: corev1.NodeStatus{
			Capacity: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}, Allocatable: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("7")},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}, NodeInfo: corev1.NodeSystemInfo{BootID: "b"},
		},
	}
	for _, c := range change {
		c(n)
	}
	return n
}

// packed is what a transform makes of an object, and of what it has made.
func packed(t *testing.T, transform cache.TransformFunc, x any) *kube.Packed {
	t.Helper()
	once, err := transform(x)
	p, ok := once.(*kube.Packed)
	if twice, err2 := transform(once); err != nil || !ok || err2 != nil || twice != once {
		t.Fatalf("%+v, %v, and again %+v, %v", once, err, twice, err2)
	}
	return p
}

func TestANodeComesOutAsItWas(t *testing.T) {
	p := packed(t, packNode, counted())
	if got, err := unpackNode(p); err != nil || nodeOf(p) != "n" || !equality.Semantic.DeepEqual(got, counted()) {
		t.Errorf("the node %q is %+v, %v", nodeOf(p), got, err)
	}
	if got, err := unpackNode(&kube.Packed{Raw: []byte("x")}); err == nil {
		t.Errorf("of no node's bytes comes %+v", got)
	}
}

// TestANodeIsTheSame while nothing has changed that is read.
func TestANodeIsTheSame(t *testing.T) {
	before := packed(t, packNode, counted())
	for name, tt := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"its version":    {func(n *corev1.Node) { n.ResourceVersion = "8" }, true},
		"its heartbeat":  {func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.Now() }, true},
		"its images":     {func(n *corev1.Node) { n.Status.Images = make([]corev1.ContainerImage, 1) }, true},
		"its identity":   {func(n *corev1.Node) { n.UID = "x" }, false},
		"its labels":     {func(n *corev1.Node) { n.Labels["a"] = "x" }, false},
		"its annotation": {func(n *corev1.Node) { n.Annotations["e"] = "x" }, false},
		"its cordon":     {func(n *corev1.Node) { n.Spec.Unschedulable = false }, false},
		"its GPUs":       {func(n *corev1.Node) { n.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("6") }, false},
		"its readiness":  {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, false},
	} {
		if got := same(before, packed(t, packNode, counted(tt.change))); got != tt.want {
			t.Errorf("with %s changed it is the same: %t", name, got)
		}
	}
}

func TestASliceComesOutAsItWas(t *testing.T) {
	slice := func(node *string, devices ...string) *resourcev1.ResourceSlice {
		s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s", ResourceVersion: "7"}, Spec: resourcev1.ResourceSliceSpec{NodeName: node}}
		for _, d := range devices {
			s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: d})
		}
		return s
	}
	p := packed(t, packSlice, slice(new("n"), "gpu-0", "gpu-1"))
	if got, err := unpackSlice(p); err != nil || nodeOf(p) != "n" || !equality.Semantic.DeepEqual(got, slice(new("n"), "gpu-0", "gpu-1")) {
		t.Errorf("the slice of %q is %+v, %v", nodeOf(p), got, err)
	}
	if !same(p, packed(t, packSlice, slice(new("n"), "gpu-0", "gpu-1"))) || same(p, packed(t, packSlice, slice(new("n"), "gpu-0"))) {
		t.Error("the same slice is another, or one with fewer devices the same")
	}
	if got := nodeOf(packed(t, packSlice, slice(nil))); got != "" {
		t.Errorf("a slice of no node is of %q", got)
	}
}
