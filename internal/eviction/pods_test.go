package eviction

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func pod(namespace string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}}
	p.Status.Phase = corev1.PodRunning
	for _, c := range change {
		c(p)
	}
	return p
}

func ownedByA(kind string) func(*corev1.Pod) {
	yes := true
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "o", UID: "u", Controller: &yes}}
	}
}

func annotated(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{key: value} }
}

func phase(ph corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = ph }
}

func notReadySince(d time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(now.Add(-d)),
		}}
	}
}

// terminatingUntil is a pod whose grace period ends after d.
func terminatingUntil(d time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now.Add(d)} }
}

func ready(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour)),
	}}
}

func TestMustGo(t *testing.T) {
	policy := compile(t, with([]NamespaceRule{{"web", Immediate}, {"batch-*", DeleteAfterTimeout}}))
	tests := []struct {
		name string
		pod  *corev1.Pod
		want Verdict
		why  Reason
	}{
		{"named", pod("web"), Verdict{true, Immediate}, NamedByRule},
		{"globbed", pod("batch-7"), Verdict{true, DeleteAfterTimeout}, MatchedByRule},
		{"unnamed", pod("other"), Verdict{true, AllowCompletion}, MatchedByNoRule},
		{"system", pod("kube-system"), Verdict{}, SystemNamespace},
		{"daemon", pod("web", ownedByA("DaemonSet")), Verdict{}, DaemonSetPod},
		{"replica", pod("web", ownedByA("ReplicaSet")), Verdict{true, Immediate}, NamedByRule},
		{"mirror", pod("web", annotated(corev1.MirrorPodAnnotationKey, "x")), Verdict{}, StaticPod},
		{"owned by the node", pod("web", ownedByA("Node")), Verdict{}, StaticPod},
		{"from a file", pod("web", annotated("kubernetes.io/config.source", "file")), Verdict{}, StaticPod},
		{"from the API", pod("web", annotated("kubernetes.io/config.source", "api")), Verdict{true, Immediate}, NamedByRule},
		{"succeeded", pod("web", phase(corev1.PodSucceeded)), Verdict{}, FinishedPod},
		{"failed", pod("web", phase(corev1.PodFailed)), Verdict{}, FinishedPod},
		{"pending", pod("web", phase(corev1.PodPending)), Verdict{true, Immediate}, NamedByRule},
		{"ready for an hour", pod("web", ready), Verdict{true, Immediate}, NamedByRule},
		{"not ready for a moment", pod("web", notReadySince(5*time.Minute-1)), Verdict{true, Immediate}, NamedByRule},
		{"not ready for too long", pod("web", notReadySince(5*time.Minute)), Verdict{}, NotReadyTooLong},
		{"terminating", pod("web", terminatingUntil(-5*time.Minute+1)), Verdict{true, Immediate}, NamedByRule},
		{"stuck", pod("web", terminatingUntil(-5*time.Minute)), Verdict{}, StuckTerminating},
		{"tolerates everything", pod("web", func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}), Verdict{true, Immediate}, NamedByRule},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for what, p := range map[string]*corev1.Pod{"whole": tt.pod, "facts": Facts(tt.pod)} {
				got, why := MustGo(p, policy, now)
				if diff := cmp.Diff([]any{tt.want, tt.why}, []any{got, why}); diff != "" {
					t.Errorf("verdict on the %s pod (-want +got):\n%s", what, diff)
				}
				if ever, _ := MustGo(p, Policy{}, now); Stays(p) == ever.Go { // the zero policy leaves none alone
					t.Errorf("the %s pod stays: %t, and must go: %t", what, Stays(p), ever.Go)
				}
			}
		})
	}
}

func TestPendingKeepsTheOrder(t *testing.T) {
	policy := compile(t, with([]NamespaceRule{{"web", Immediate}}))
	a, b, c := pod("web"), pod("kube-system"), pod("other")
	got := Pending([]*corev1.Pod{a, b, c}, policy, now)
	want := []Due{{Pod: a, Mode: Immediate, Why: NamedByRule}, {Pod: c, Mode: AllowCompletion, Why: MatchedByNoRule}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pending (-want +got):\n%s", diff)
	}
}

func TestTheZeroPolicyWaitsForEver(t *testing.T) {
	p := pod("kube-system", notReadySince(1000*time.Hour))
	if v, why := MustGo(p, Policy{}, now); !v.Go || v.Mode != AllowCompletion {
		t.Errorf("verdict %+v (%s), want to wait for it", v, why)
	}
}
