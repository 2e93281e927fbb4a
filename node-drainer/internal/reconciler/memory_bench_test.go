package reconciler

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
)

// cachedPods is how many pods BenchmarkPodCache keeps, ten on each node.
const cachedPods = 10_000

// BenchmarkPodCache fills the cache of pods and reports what one takes in the heap. Seven
// of ten are daemons, the others a Job's.
func BenchmarkPodCache(b *testing.B) {
	for b.Loop() {
		w, err := NewCluster(fake.NewClientset())
		if err != nil {
			b.Fatal(err)
		}
		before := heap()
		for i := range cachedPods {
			x, err := trim(arrived(b, i))
			if err != nil {
				b.Fatal(err)
			}
			if err := w.podInformer.GetStore().Add(x); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(heap()-before)/cachedPods, "B/pod")
		runtime.KeepAlive(w)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// arrived is a pod of 4 KB as a watch brings it: no string of it is another pod's too.
func arrived(b *testing.B, i int) *corev1.Pod {
	kind := "DaemonSet"
	if i%10 >= 7 {
		kind = "Job"
	}
	app := fmt.Sprintf("workload-%d", i%10)
	sent := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "training", Name: fmt.Sprintf("%s-%012x-%d", app, i, i%10), UID: types.UID(fmt.Sprintf("%036d", i)), ResourceVersion: fmt.Sprint(1_000_000 + i),
			Annotations:     map[string]string{"cni.projectcalico.org/podIP": "10.0.0.1/32"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: app, UID: types.UID(fmt.Sprintf("%036d", i)), Controller: new(true)}},
			Labels: map[string]string{
				"app": app, "app.kubernetes.io/name": app, "app.kubernetes.io/part-of": "training", "controller-revision-hash": "5d4f8c7b9d", "pod-template-generation": "1",
			},
		},
		Spec: corev1.PodSpec{NodeName: fmt.Sprintf("gpu-%d", i/10), Containers: []corev1.Container{container("main"), container("sidecar")}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, HostIP: "10.64.0.1", PodIP: "10.128.0.1", StartTime: new(metav1.Unix(1000, 0)), ContainerStatuses: []corev1.ContainerStatus{
			{Name: "main", Ready: true, Image: "image", ImageID: strings.Repeat("d", 100), ContainerID: "containerd://" + strings.Repeat("d", 64)},
			{Name: "sidecar", Ready: true, Image: "image", ImageID: strings.Repeat("d", 100), ContainerID: "containerd://" + strings.Repeat("d", 64)},
		}},
	}
	for _, c := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		sent.Status.Conditions = append(sent.Status.Conditions, corev1.PodCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(1000, 0)})
	}
	raw, err := sent.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	pod := &corev1.Pod{}
	if err := pod.Unmarshal(raw); err != nil {
		b.Fatal(err)
	}
	return pod
}

func container(name string) corev1.Container {
	c := corev1.Container{Name: name, Image: "nvcr.io/nvidia/training/framework-1:25.03-py3", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}, Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
	}}
	for i := range 20 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", i), Value: strings.Repeat("v", 50)})
	}
	return c
}
