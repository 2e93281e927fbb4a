package eviction

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ownedBy gives a pod its controller by API version and kind.
func owned(apiVersion, kind string) func(*corev1.Pod) {
	yes := true
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "o", UID: "u", Controller: &yes}}
	}
}

func withGPU(p *corev1.Pod) {
	p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")},
	}}}
}

// TestModeByOwnerKind: what AllowCompletion means for the pods of each kind of owner, in
// a namespace that no rule names.
func TestModeByOwnerKind(t *testing.T) {
	immediate, waits := Verdict{true, Immediate}, Verdict{true, AllowCompletion}
	tests := []struct {
		apiVersion, kind string
		want             Verdict
		why              Reason
	}{
		// Services: an eviction costs no run.
		{"slinky.slurm.net/v1beta1", "NodeSet", immediate, OwnerKind},
		{"slinky.slurm.net/v1alpha1", "NodeSet", immediate, OwnerKind},
		{"apps/v1", "ReplicaSet", immediate, OwnerKind},
		{"v1", "ReplicationController", immediate, OwnerKind},
		{"apps.kruise.io/v1alpha1", "CloneSet", immediate, OwnerKind},
		// One pod on every node.
		{"apps/v1", "DaemonSet", Verdict{}, DaemonSetPod},
		{"apps.kruise.io/v1alpha1", "DaemonSet", Verdict{}, DaemonSetPod},
		{"datadoghq.com/v1alpha1", "ExtendedDaemonSetReplicaSet", Verdict{}, PerNodeController},
		// What may hold a run or a person's work waits.
		{"apps/v1", "StatefulSet", waits, MatchedByNoRule},
		{"ray.io/v1", "RayCluster", waits, MatchedByNoRule},
		{"batch/v1", "Job", waits, MatchedByNoRule},
		{"jobset.x-k8s.io/v1alpha2", "JobSet", waits, MatchedByNoRule},
		{"kubeflow.org/v1", "PyTorchJob", waits, MatchedByNoRule},
		{"kubeflow.org/v2beta1", "MPIJob", waits, MatchedByNoRule},
		{"leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", waits, MatchedByNoRule},
		// Kinds of the same name in another group are unknown.
		{"example.com/v1", "NodeSet", waits, MatchedByNoRule},
		{"example.com/v1", "ReplicaSet", waits, MatchedByNoRule},
		{"example.com/v1", "Anything", waits, MatchedByNoRule},
		{"a/b/c", "NodeSet", waits, MatchedByNoRule},
	}
	policy := compile(t, Default())
	for _, tt := range tests {
		t.Run(tt.apiVersion+" "+tt.kind, func(t *testing.T) {
			p := pod("any", owned(tt.apiVersion, tt.kind), withGPU)
			for what, p := range map[string]*corev1.Pod{"whole": p, "facts": Facts(p)} {
				got, why := MustGo(p, policy, now)
				if diff := cmp.Diff([]any{tt.want, tt.why}, []any{got, why}); diff != "" {
					t.Errorf("verdict on the %s pod (-want +got):\n%s", what, diff)
				}
			}
		})
	}
	if got, why := MustGo(pod("any"), policy, now); got != waits {
		t.Errorf("bare pod: %+v (%s), want it to wait", got, why)
	}
}

// TestOwnerOfAPod: a person reads the kind of the controller of a pod that blocks a drain.
func TestOwnerOfAPod(t *testing.T) {
	for name, tt := range map[string]struct {
		pod       *corev1.Pod
		uid, kind string
	}{
		"a bare pod":                     {pod("any"), "", ""},
		"a controller":                   {pod("any", owned("apps/v1", "ReplicaSet")), "u", "ReplicaSet"},
		"an owner that is no controller": {pod("any", owned("v1", "ConfigMap"), func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }), "", ""},
	} {
		if uid, kind := Owner(tt.pod), OwnerKindOf(tt.pod); uid != tt.uid || kind != tt.kind {
			t.Errorf("%s: %q, %q; want %q, %q", name, uid, kind, tt.uid, tt.kind)
		}
	}
}

// TestTheNamespaceComesBeforeTheOwner: a rule that names the namespace counts, and so
// does every mode that ends by itself.
func TestTheNamespaceComesBeforeTheOwner(t *testing.T) {
	for _, tt := range []struct {
		rule NamespaceRule
		want Mode
		why  Reason
	}{
		{NamespaceRule{"team", AllowCompletion}, AllowCompletion, NamedByRule},
		{NamespaceRule{"te*", AllowCompletion}, AllowCompletion, MatchedByRule},
		{NamespaceRule{"*", AllowCompletion}, Immediate, OwnerKind},
		{NamespaceRule{"*", DeleteAfterTimeout}, DeleteAfterTimeout, MatchedByAll},
		{NamespaceRule{"other", DeleteAfterTimeout}, Immediate, OwnerKind},
	} {
		t.Run(fmt.Sprint(tt.rule), func(t *testing.T) {
			got, why := MustGo(pod("team", owned("apps/v1", "ReplicaSet")), compile(t, with([]NamespaceRule{tt.rule})), now)
			if got.Mode != tt.want || why != tt.why {
				t.Errorf("mode %s (%s), want %s (%s)", got.Mode, why, tt.want, tt.why)
			}
		})
	}
}

func TestConfiguredOwners(t *testing.T) {
	c := Default()
	c.OwnerKinds = []OwnerRule{
		{"NodeSet", AllowCompletion},           // every group: before the built-in rule
		{"StatefulSet", DeleteAfterTimeout},    //
		{"StatefulSet.apps", Immediate},        // the more specific one
		{"Agent.example.com", LeaveAlone},      //
		{"ReplicaSet.apps", AllowCompletion},   // as it was without a rule for it
		{"Cluster.ray.example.com", Immediate}, // a group of several labels
	}
	policy := compile(t, c)
	for _, tt := range []struct {
		apiVersion, kind string
		want             Verdict
	}{
		{"slinky.slurm.net/v1beta1", "NodeSet", Verdict{true, AllowCompletion}},
		{"apps/v1", "StatefulSet", Verdict{true, Immediate}},
		{"apps.kruise.io/v1beta1", "StatefulSet", Verdict{true, DeleteAfterTimeout}},
		{"example.com/v1", "Agent", Verdict{}},
		{"other.com/v1", "Agent", Verdict{true, AllowCompletion}},
		{"apps/v1", "ReplicaSet", Verdict{true, AllowCompletion}},
		{"ray.example.com/v1", "Cluster", Verdict{true, Immediate}},
	} {
		if got, why := MustGo(pod("any", owned(tt.apiVersion, tt.kind)), policy, now); got != tt.want {
			t.Errorf("%s %s: %+v (%s), want %+v", tt.apiVersion, tt.kind, got, why, tt.want)
		}
	}
}

// TestLeftAlone: what a drain has found is believed of a controller that may keep a pod
// on every node, and of nothing that may be a workload.
func TestLeftAlone(t *testing.T) {
	claims := func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }
	demands := []Demand{{Extent: WholeNode(), LeftAlone: []string{"x", "u"}}, {Extent: WholeNode()}}
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		stay bool
	}{
		"of an agent":              {pod("any", owned("example.com/v1", "Agent")), true},
		"of another agent":         {pod("any", owned("example.com/v1", "Agent"), func(p *corev1.Pod) { p.OwnerReferences[0].UID = "v" }), false},
		"of an agent, with a GPU":  {pod("any", owned("example.com/v1", "Agent"), withGPU), false},
		"of an agent, with claims": {pod("any", owned("example.com/v1", "Agent"), claims), false},
		"of an agent, given a GPU": {pod("any", owned("example.com/v1", "Agent"), withDevices(`{"devices":{"nvidia.com/gpu":["GPU-a"]}}`)), false},
		"of a Deployment":          {pod("any", owned("apps/v1", "ReplicaSet")), false},
		"of a StatefulSet":         {pod("any", owned("apps/v1", "StatefulSet")), false},
		"of a Job":                 {pod("any", owned("batch/v1", "Job")), false},
		"of a NodeSet":             {pod("any", owned("slinky.slurm.net/v1beta1", "NodeSet")), false},
		"bare":                     {pod("any"), false},
	} {
		t.Run(name, func(t *testing.T) {
			for what, p := range map[string]*corev1.Pod{"whole": tt.pod, "facts": Facts(tt.pod)} {
				if owing := Owing([]*corev1.Pod{p}, demands, Policy{}, now); (len(owing) == 0) != tt.stay {
					t.Errorf("the %s pod is owed: %v, want it left alone: %t", what, owing, tt.stay)
				}
			}
		})
	}
}

func TestLost(t *testing.T) {
	policy := compile(t, Default())
	stuck, dead := pod("a", terminatingUntil(-time.Hour)), pod("b", notReadySince(time.Hour))
	got := Lost([]*corev1.Pod{stuck, dead, pod("c"), pod("d", terminatingUntil(time.Minute)), pod("kube-system", terminatingUntil(-time.Hour))}, policy, now)
	if diff := cmp.Diff([]Due{{Pod: stuck, Why: StuckTerminating}, {Pod: dead, Why: NotReadyTooLong}}, got); diff != "" {
		t.Errorf("lost (-want +got):\n%s", diff)
	}
}
