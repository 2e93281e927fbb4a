package watch

import (
	"context"
	"reflect"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/nvidia/nvsentinel/health-monitors/labeler/labeling"
	"github.com/nvidia/nvsentinel/internal/kube"
)

var began = metav1.Unix(1000, 0)

var daemonSet = metav1.OwnerReference{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "dcgm", UID: "d", Controller: new(true)}

// running is a pod of the node n that is Ready.
func running(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "gpu-operator", Name: "dcgm", UID: "u", ResourceVersion: "7", CreationTimestamp: began, Labels: map[string]string{"app": "nvidia-dcgm"}, OwnerReferences: []metav1.OwnerReference{daemonSet}},
		Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "dcgm:4.5.2"}, {Name: "d", Image: "other:1"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func slimmed(t testing.TB, p *corev1.Pod) any {
	t.Helper()
	x, err := slimPod(p)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestCachedPodFields: what is read, and what a cache asks for; and an update matters if
// that changes.
func TestCachedPodFields(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		want   func(*pod)
		same   bool
	}{
		"running":     {func(*corev1.Pod) {}, func(*pod) {}, true},
		"written":     {func(p *corev1.Pod) { p.ResourceVersion, p.Labels = "8", nil }, func(p *pod) { p.Version = "8" }, true},
		"restarted":   {func(p *corev1.Pod) { p.Status.ContainerStatuses = make([]corev1.ContainerStatus, 1) }, func(*pod) {}, true},
		"not ready":   {func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }, func(p *pod) { p.is.Ready = false }, false},
		"going":       {func(p *corev1.Pod) { p.DeletionTimestamp = &began }, func(p *pod) { p.is.Ending = true }, false},
		"succeeded":   {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, func(p *pod) { p.ended = true }, false},
		"failed":      {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, func(p *pod) { p.ended = true }, false},
		"elsewhere":   {func(p *corev1.Pod) { p.Spec.NodeName = "m" }, func(p *pod) { p.Node = "m" }, false},
		"another":     {func(p *corev1.Pod) { p.CreationTimestamp = metav1.Unix(2000, 0) }, func(p *pod) { p.is.Created = metav1.Unix(2000, 0).Time }, false},
		"nobody's":    {func(p *corev1.Pod) { p.OwnerReferences = nil }, func(p *pod) { p.daemon = false }, false},
		"of an image": {func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] }, func(p *pod) { p.is.Images = p.is.Images[:1] }, false},
	} {
		before := slimmed(t, running(func(p *corev1.Pod) { p.ResourceVersion = "6" }))
		got := slimmed(t, running(tt.change))
		want := &pod{
			Packed: kube.Packed{Namespace: "gpu-operator", Name: "dcgm", Version: "7", Node: "n"},
			is:     labeling.Pod{Images: []string{"dcgm:4.5.2", "other:1"}, Ready: true, Created: began.Time}, daemon: true,
		}
		tt.want(want)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("of a pod that is %s there is %+v, want %+v", name, got, want)
		}
		if got := same(before, got); got != tt.same {
			t.Errorf("a pod that is %s is the same: %t", name, got)
		}
		if again, err := slimPod(got); err != nil || again != got {
			t.Errorf("of what is kept there is %v, %v", again, err)
		}
	}
}

// TestPodsOnANode are those that have not ended, with their full names.
func TestPodsOnANode(t *testing.T) {
	c := NewCaches(fake.NewClientset(), Sources{Namespaces: []string{"gpu-operator"}, DCGM: "nvidia-dcgm", Driver: "driver"})
	if got := anywhere(c.dcgm); got {
		t.Error("there are pods in an empty cache")
	}
	owned := func(change func(*metav1.OwnerReference)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { change(&p.OwnerReferences[0]) }
	}
	for name, change := range map[string]func(*corev1.Pod){
		"nobody's":         func(p *corev1.Pod) { p.OwnerReferences = nil },
		"kubelet's":        owned(func(o *metav1.OwnerReference) { o.APIVersion, o.Kind, o.Name = "v1", "Node", "n" }),
		"of a ReplicaSet":  owned(func(o *metav1.OwnerReference) { o.Kind = "ReplicaSet" }),
		"of another group": owned(func(o *metav1.OwnerReference) { o.APIVersion = "example.com/v1" }),
		"not controlled":   owned(func(o *metav1.OwnerReference) { o.Controller = nil }),
		"a":                func(*corev1.Pod) {}, "ended": func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
		"elsewhere": func(p *corev1.Pod) { p.Spec.NodeName = "m" }, "unbound": func(p *corev1.Pod) { p.Spec.NodeName = "" },
	} {
		if err := c.dcgm[0].GetStore().Add(slimmed(t, running(change, func(p *corev1.Pod) { p.Name = name }))); err != nil {
			t.Fatal(err)
		}
	}
	want := []labeling.Pod{{Name: "gpu-operator/a", Images: []string{"dcgm:4.5.2", "other:1"}, Ready: true, Created: began.Time}}
	if got := podsOn(c.dcgm, "n"); !reflect.DeepEqual(got, want) || !anywhere(c.dcgm) {
		t.Errorf("on the node are %+v, want %+v", got, want)
	}
	for what, x := range map[string]any{"pod": slimmed(t, running()), "one that is gone": cache.DeletedFinalStateUnknown{Obj: slimmed(t, running())}} {
		if got := nodeOf(x); got != "n" {
			t.Errorf("the node of a %s is %q", what, got)
		}
	}
}

// TestAStandbyIsReadyWithoutCaches: they are filled by the one that leads.
func TestAStandbyIsReadyWithoutCaches(t *testing.T) {
	tenant := running(func(p *corev1.Pod) { p.Namespace = "team-a" })
	c := NewCaches(fake.NewClientset(running(), tenant), Sources{Namespaces: []string{"gpu-operator", "kube-system"}, DCGM: "nvidia-dcgm", Driver: "driver"})
	if ok, detail := c.Ready(); !ok || detail != "standby, another replica leads" || c.filled() {
		t.Errorf("before it leads: %t, %s; filled: %t", ok, detail, c.filled())
	}
	ctx, cancel := context.WithCancel(t.Context())
	var kept sync.WaitGroup
	kept.Go(func() { c.keep(ctx) })
	defer kept.Wait()
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), c.filled) {
		t.Fatal("the caches are not filled")
	}
	if ok, detail := c.Ready(); !ok || detail != "filled" || len(podsOn(c.dcgm, "n")) != 1 {
		t.Errorf("as the leader: %t, %s; %d pods", ok, detail, len(podsOn(c.dcgm, "n")))
	}
}
