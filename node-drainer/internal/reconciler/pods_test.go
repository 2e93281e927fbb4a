package reconciler

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/nvidia/nvsentinel/internal/eviction"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// onNode is a pod of the node n that runs and is Ready.
func onNode(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7", Labels: map[string]string{"app": "a", "tier": "b"}},
		Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(1000, 0)},
		}},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func owner(kind string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "o", Controller: new(true)}}
	}
}

func leaving(grace int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.Unix(2000, 0)), &grace
	}
}

func withDevices(devices string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{nodemark.DevicesAnnotation: devices, "large": "x"}
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1"), corev1.ResourceCPU: resource.MustParse("1")}
	}
}

func ended(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }

func elsewhere(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

func packed(t *testing.T, pod *corev1.Pod) *kube.Packed {
	t.Helper()
	x, err := trim(pod)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := trim(x); err != nil || again != x {
		t.Errorf("what is packed becomes %v, %v", again, err)
	}
	return x.(*kube.Packed) //nolint:forcetypeassert // trim packs pods
}

// TestPodsAreTheFactsOfThoseOfTheNode, by name, but of those that stay.
func TestPodsAreTheFactsOfThoseOfTheNode(t *testing.T) {
	w, err := NewCluster(fake.NewClientset())
	if err != nil {
		t.Fatal(err)
	}
	of := []*corev1.Pod{
		onNode("a"), onNode("c", owner("Job"), leaving(30)), onNode("d", withDevices(`{"devices":{}}`)),
		onNode("e", func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }),
	}
	not := []*corev1.Pod{
		onNode("other", elsewhere("m")), onNode("unbound", elsewhere("")), onNode("daemon", owner("DaemonSet")), onNode("static", owner("Node")), onNode("ended", ended),
	}
	for _, pod := range slices.Concat(of, not) {
		if err := w.podInformer.GetStore().Add(packed(t, pod)); err != nil {
			t.Fatal(err)
		}
	}
	var want []*corev1.Pod
	for _, pod := range of {
		want = append(want, eviction.Facts(pod))
	}
	got, err := w.Pods("n")
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Errorf("%v, pods (-want +got):\n%s", err, diff)
	}
	if none, err := w.Pods("nobody"); err != nil || len(none) > 0 {
		t.Errorf("a node without pods has %v, %v", none, err)
	}
}

// TestAPodThatCannotBeReadIsNotAbsent: the node's pods are not known then.
func TestAPodThatCannotBeReadIsNotAbsent(t *testing.T) {
	w, err := NewCluster(fake.NewClientset())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.podInformer.GetStore().Add(&kube.Packed{Namespace: "web", Name: "a", Node: "n", Raw: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if pods, err := w.Pods("n"); err == nil {
		t.Errorf("the pods are %v", pods)
	}
}

func TestPodChanged(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"nothing":          {func(*corev1.Pod) {}, false},
		"its version":      {func(p *corev1.Pod) { p.ResourceVersion = "8" }, false},
		"other conditions": {func(p *corev1.Pod) { p.Status.Conditions = p.Status.Conditions[1:] }, false},
		"its containers": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", RestartCount: 1}}
		}, false},
		"other annotation": {func(p *corev1.Pod) { p.Annotations = map[string]string{"note": "x"} }, false},
		"another pod":      {func(p *corev1.Pod) { p.UID = "x" }, true},
		"another node":     {elsewhere("m"), true},
		"bound no more":    {elsewhere(""), true},
		"its end":          {ended, true},
		"its owner":        {owner("DaemonSet"), true},
		"its phase":        {func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }, true},
		"its deletion":     {leaving(30), true},
		"its readiness":    {func(p *corev1.Pod) { p.Status.Conditions[1].Status = corev1.ConditionFalse }, true},
		"its devices":      {func(p *corev1.Pod) { p.Annotations = map[string]string{nodemark.DevicesAnnotation: "{}"} }, true},
		"its labels":       {func(p *corev1.Pod) { p.Labels["app"] = "x" }, true},
	} {
		before, after := packed(t, onNode("a")), packed(t, onNode("a", tt.change))
		if got, back := podChanged(before, after), podChanged(after, before); got != tt.want || back != tt.want {
			t.Errorf("%s: changed %t, and back %t; want %t", name, got, back, tt.want)
		}
	}
}

// TestPodMessages: pods that come, go, late or not, and change; each is reported to its
// node, or to both. A change that matters to no drain is reported to none.
func TestPodMessages(t *testing.T) {
	a, same, moved := packed(t, onNode("a")), packed(t, onNode("a")), packed(t, onNode("a", elsewhere("m"), leaving(0)))
	daemon, end := packed(t, onNode("a", owner("DaemonSet"))), packed(t, onNode("a", ended))
	for name, tt := range map[string]struct {
		do   func(cache.ResourceEventHandler)
		want string
	}{
		"comes":              {func(h cache.ResourceEventHandler) { h.OnAdd(a, false) }, "n"},
		"comes, and stays":   {func(h cache.ResourceEventHandler) { h.OnAdd(daemon, false) }, ""},
		"is written":         {func(h cache.ResourceEventHandler) { h.OnUpdate(a, same) }, ""},
		"is on another":      {func(h cache.ResourceEventHandler) { h.OnUpdate(a, moved) }, "m n"},
		"ends":               {func(h cache.ResourceEventHandler) { h.OnUpdate(a, end) }, "n"},
		"is given free":      {func(h cache.ResourceEventHandler) { h.OnUpdate(daemon, a) }, "n"},
		"goes":               {func(h cache.ResourceEventHandler) { h.OnDelete(moved) }, "m"},
		"goes, having ended": {func(h cache.ResourceEventHandler) { h.OnDelete(end) }, ""},
		"is gone":            {func(h cache.ResourceEventHandler) { h.OnDelete(cache.DeletedFinalStateUnknown{Key: "web/a", Obj: a}) }, "n"},
		"was never seen":     {func(h cache.ResourceEventHandler) { h.OnDelete(cache.DeletedFinalStateUnknown{Key: "web/a"}) }, ""},
	} {
		var reported []string
		tt.do(handler(podChanged, func(p *kube.Packed) string { return p.Node }, func(node string) {
			if node != "" {
				reported = append(reported, node)
			}
		}))
		if got := strings.Join(reported, " "); got != tt.want {
			t.Errorf("a pod %s: told to %q, want %q", name, got, tt.want)
		}
	}
}
