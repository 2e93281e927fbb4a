package eviction

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// open is a fault of session s.
func open(change ...func(*record.Record)) record.Record {
	r := record.Record{ID: "r1", CreatedAt: now}
	r.Event = record.Event{
		ID: "r1", ProcessingStrategy: record.Process, RecommendedAction: record.ActionComponentReset,
		EntitiesImpacted: []record.Entity{{EntityType: "GPU", EntityValue: "0"}, {EntityType: "GPU_UUID", EntityValue: "GPU-a"}},
	}
	r.Status = record.Status{
		NodeQuarantined: record.Quarantined, Session: "s", Faults: []record.Fault{{Key: "k"}},
		QuarantineVerdict: &record.Verdict{Reason: record.Matched, At: now},
	}
	for _, c := range change {
		c(&r)
	}
	return r
}

func entities(pairs ...string) func(*record.Record) {
	return func(r *record.Record) {
		r.Event.EntitiesImpacted = nil
		for i := 0; i < len(pairs); i += 2 {
			r.Event.EntitiesImpacted = append(r.Event.EntitiesImpacted, record.Entity{EntityType: pairs[i], EntityValue: pairs[i+1]})
		}
	}
}

func drainOverride(force, skip bool) func(*record.Record) {
	return func(r *record.Record) { r.Event.DrainOverrides = &record.Override{Force: force, Skip: skip} }
}

func repair(trace record.Remediation) func(*record.Record) {
	return func(r *record.Record) { r.Status.Remediation = &trace }
}

func action(a record.Action) func(*record.Record) {
	return func(r *record.Record) { r.Event.RecommendedAction = a }
}

func TestExtentOf(t *testing.T) {
	tests := []struct {
		name string
		r    record.Record
		want string
		why  Reason
	}{
		{"one GPU", open(), "GPU-a", GPURepair},
		{"two GPUs", open(entities("GPU_UUID", "GPU-b", "GPU_UUID", "GPU-a")), "GPU-a, GPU-b", GPURepair},
		{"two GPUs by every name", open(entities("PCI", "0:1", "GPU_UUID", "GPU-b", "PCI", "0:2", "GPU_UUID", "GPU-a")), "GPU-a, GPU-b", GPURepair},
		{"sub-unit", open(entities("GPU_UUID", "GPU-a", "NVLINK", "3")), "GPU-a", GPURepair},
		{"no entity", open(entities()), "the node", GPUNotNamed},
		{"only an address", open(entities("PCI", "0000:3b:00")), "the node", GPUNotNamed},
		{"an empty UUID", open(entities("GPU_UUID", "")), "the node", GPUNotNamed},
		{"a switch too", open(entities("GPU_UUID", "GPU-a", "NVSWITCH", "1")), "the node", GPUNotNamed},
		{"reboot", open(action(record.ActionRestartVM)), "the node", NodeRepair},
		{"a person", open(action(record.ActionContactSupport)), "the node", NodeRepair},
		{"nothing to repair", open(action(record.ActionNone)), "the node", NodeRepair},
		{"skip", open(drainOverride(false, true)), "nothing", SkipRequested},
		{"skip a reboot", open(action(record.ActionRestartVM), drainOverride(false, true)), "nothing", SkipRequested},
		{"both", open(drainOverride(true, true)), "GPU-a", GPURepair},
		{"escalated", open(repair(record.Remediation{Action: record.ActionRestartBM})), "the node", NodeRepair},
		{"escalated to a reset", open(action("SOFT_RESET"), repair(record.Remediation{Action: record.ActionComponentReset})), "GPU-a", GPURepair},
		{"tried once", open(repair(record.Remediation{Attempts: []record.Attempt{{State: "Unhealthy"}}})), "GPU-a", GPURepair},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, why := Policy{PartialDrain: true}.ExtentOf(tt.r)
			if got.String() != tt.want || why != tt.why {
				t.Errorf("extent %s (%s), want %s (%s)", got, why, tt.want, tt.why)
			}
			if got.IsNothing() != (tt.want == "nothing") || got.IsWholeNode() != (tt.want == "the node") {
				t.Errorf("nothing %t, whole %t of %s", got.IsNothing(), got.IsWholeNode(), got)
			}
		})
	}
	if got, why := (Policy{}).ExtentOf(open()); !got.IsWholeNode() || why != NodeRepair {
		t.Errorf("without partial drain: extent %s (%s), want the node", got, why)
	}
}

func requesting(name corev1.ResourceName, n int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: "c", Image: "i", Command: []string{"x"},
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
				name: *resource.NewQuantity(n, resource.DecimalSI), corev1.ResourceCPU: resource.MustParse("1"),
			}},
		})
	}
}

func withDevices(text string) func(*corev1.Pod) { return annotated(nodemark.DevicesAnnotation, text) }

func claims(p *corev1.Pod) {
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
}

func TestWhichPodsAGPUsRepairTakesIn(t *testing.T) {
	tests := []struct {
		name string
		pod  *corev1.Pod
		want bool
		why  Reason
	}{
		{"its GPU", pod("web", requesting("nvidia.com/gpu", 1), withDevices(`{"devices":{"nvidia.com/gpu":["GPU-a"]}}`)), true, HoldsGPU},
		{"its GPU among others", pod("web", requesting("nvidia.com/gpu", 2), withDevices(`{"devices":{"nvidia.com/gpu":["GPU-b","GPU-a"]}}`)), true, HoldsGPU},
		{"passed through", pod("web", requesting("nvidia.com/pgpu", 1), withDevices(`{"devices":{"nvidia.com/pgpu":["GPU-a"]}}`)), true, HoldsGPU},
		{"a share of it", pod("web", requesting("nvidia.com/gpu.shared", 1), withDevices(`{"devices":{"nvidia.com/gpu.shared":["GPU-a::3"]}}`)), true, HoldsGPU},
		{"another GPU", pod("web", requesting("nvidia.com/gpu", 1), withDevices(`{"devices":{"nvidia.com/gpu":["GPU-b"]}}`)), false, OtherDevices},
		{"a share of another", pod("web", requesting("nvidia.com/gpu.shared", 1), withDevices(`{"devices":{"nvidia.com/gpu.shared":["GPU-b::0"]}}`)), false, OtherDevices},
		{"no GPU", pod("web"), false, OtherDevices},
		{"a NIC", pod("web", requesting("nvidia.com/mlnxnics", 1)), false, OtherDevices},
		{"asked for none", pod("web", requesting("nvidia.com/gpu", 0)), false, OtherDevices},
		{"not annotated", pod("web", requesting("nvidia.com/gpu", 1)), true, MayHoldGPU},
		{"annotated for something else", pod("web", requesting("nvidia.com/gpu", 1), withDevices(`{"devices":{"nvidia.com/mlnxnics":["x"]}}`)), true, MayHoldGPU},
		{"annotated with nothing", pod("web", requesting("nvidia.com/gpu", 1), withDevices(`{"devices":{"nvidia.com/gpu":[]}}`)), true, MayHoldGPU},
		{"broken annotation", pod("web", withDevices(`{"devices":`)), true, MayHoldGPU},
		{"an instance of some GPU", pod("web", requesting("nvidia.com/mig-1g.5gb", 1), withDevices(`{"devices":{"nvidia.com/mig-1g.5gb":["MIG-1"]}}`)), true, MayHoldGPU},
		{"a claim", pod("web", claims), true, MayHoldGPU},
		{"a claim that is told", pod("web", claims, withDevices(`{"devices":{"nvidia.com/gpu":["GPU-b"]}}`)), false, OtherDevices},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for what, p := range map[string]*corev1.Pod{"whole": tt.pod, "facts": Facts(tt.pod)} {
				if got, why := GPUs("GPU-a", "GPU-x").Includes(p); got != tt.want || why != tt.why {
					t.Errorf("%s pod: %t (%s), want %t (%s)", what, got, why, tt.want, tt.why)
				}
			}
			if all, _ := WholeNode().Includes(tt.pod); !all {
				t.Error("the whole node's repair leaves it")
			}
			if none, _ := (Extent{}).Includes(tt.pod); none {
				t.Error("nothing takes it in")
			}
		})
	}
}

func TestFactsAreSmall(t *testing.T) {
	p := pod("web", requesting("nvidia.com/gpu", 1), withDevices("{}"), ready)
	p.Annotations["large"] = "x"
	ownedByA("ReplicaSet")(p)
	p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{Kind: "Other"})
	p.Status.Conditions[0].Message = "for people"
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
	p.Labels = map[string]string{"app": "web"}
	p.Spec.NodeName = "n1"
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "sidecar"})
	want := pod("web", withDevices("{}"), ready)
	want.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", UID: "u", Controller: p.OwnerReferences[0].Controller}}
	want.Labels, want.Spec.NodeName = p.Labels, "n1"
	want.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(1, resource.DecimalSI)},
	}}}
	if diff := cmp.Diff(want, Facts(p)); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
}

func TestDemandsAreThoseOfTheSessionsOpenFaults(t *testing.T) {
	cleared := now
	for name, change := range map[string]func(*record.Record){
		"another session": func(r *record.Record) { r.Status.Session = "t" },
		"repaired":        func(r *record.Record) { r.Status.FaultRemediated = record.Yes() },
		"a person's":      func(r *record.Record) { r.Status.FaultRemediated = record.No() },
		"cleared":         func(r *record.Record) { r.Status.Faults[0].ClearedTimestamp = &cleared },
		"released":        func(r *record.Record) { r.Status.NodeQuarantined = record.QuarantineCanceled },
		"held":            func(r *record.Record) { r.Status.QuarantineVerdict.Reason = record.Held },
		"a recovery":      func(r *record.Record) { r.Event.IsHealthy = true },
		"stored only":     func(r *record.Record) { r.Event.ProcessingStrategy = record.PersistOnly },
	} {
		if got := (Policy{}).Demands([]record.Record{open(change)}, "s"); len(got) != 0 {
			t.Errorf("%s: demands %v, want none", name, got)
		}
	}
	got := Policy{PartialDrain: true}.Demands([]record.Record{open(), open(drainOverride(true, false), action(record.ActionRestartBM))}, "s")
	want := []Demand{
		{Extent: GPUs("GPU-a"), Why: GPURepair, Since: now},
		{Extent: WholeNode(), Why: NodeRepair, Forced: true, Since: now},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Extent{})); diff != "" {
		t.Errorf("demands (-want +got):\n%s", diff)
	}
	for _, tt := range []struct {
		demands []Demand
		want    string
	}{
		{nil, "nothing"}, {got, "the node"}, {got[:1], "GPU-a"},
		{[]Demand{{Extent: GPUs("GPU-b")}, {}, {Extent: GPUs("GPU-a", "GPU-b")}}, "GPU-a, GPU-b"},
	} {
		if got := Union(tt.demands).String(); got != tt.want {
			t.Errorf("union of %v is %s, want %s", tt.demands, got, tt.want)
		}
	}
	if got := (Policy{}).Demands([]record.Record{open(func(r *record.Record) { r.Status.Session = "" })}, ""); len(got) != 0 {
		t.Errorf("no session: demands %v, want none", got)
	}
}

// TestDeadlinesCountFromTheVerdict: a node's clock may be a year ahead, or behind.
func TestDeadlinesCountFromTheVerdict(t *testing.T) {
	ahead := open(func(r *record.Record) { r.CreatedAt = now.AddDate(1, 0, 0) })
	behind := open(func(r *record.Record) { r.CreatedAt = now.AddDate(-1, 0, 0) })
	generated := open(func(r *record.Record) {
		r.Status.QuarantineVerdict, r.CreatedAt, r.Event.GeneratedTimestamp = nil, time.Time{}, now.Add(-time.Minute)
	})
	unjudged := open(func(r *record.Record) { r.Status.QuarantineVerdict = nil })
	for name, tt := range map[string]struct {
		r    record.Record
		want time.Time
	}{"ahead": {ahead, now}, "behind": {behind, now}, "generated": {generated, now.Add(-time.Minute)}, "unjudged": {unjudged, now}} {
		if got := (Policy{}).DemandOf(tt.r).Since; !got.Equal(tt.want) {
			t.Errorf("%s: since %s, want %s", name, got, tt.want)
		}
	}
}

func TestOwing(t *testing.T) {
	policy := compile(t, with([]NamespaceRule{{"web", Immediate}, {"batch", DeleteAfterTimeout}}))
	onA, onB := withDevices(`{"devices":{"nvidia.com/gpu":["GPU-a"]}}`), withDevices(`{"devices":{"nvidia.com/gpu":["GPU-b"]}}`)
	a := Demand{Extent: GPUs("GPU-a"), Since: now.Add(-time.Minute)}
	b := Demand{Extent: GPUs("GPU-b"), Since: now.Add(-time.Hour), Forced: true}
	whole := Demand{Extent: WholeNode(), Since: now}
	tests := []struct {
		name    string
		pod     *corev1.Pod
		demands []Demand
		want    []Due
	}{
		{"no demand", pod("web", onA), nil, nil},
		{"skip", pod("web", onA), []Demand{{}}, nil},
		{"skip and whole", pod("web", onA), []Demand{{}, whole}, []Due{{nil, Immediate, NamedByRule, now}}},
		{"another GPU", pod("web", onB), []Demand{a}, nil},
		{"its GPU", pod("batch", onA), []Demand{a}, []Due{{nil, DeleteAfterTimeout, NamedByRule, now.Add(-time.Minute)}}},
		{"the older fault's deadline", pod("batch", onA), []Demand{whole, a}, []Due{{nil, DeleteAfterTimeout, NamedByRule, now.Add(-time.Minute)}}},
		{"force of another GPU", pod("other", onA), []Demand{a, b}, []Due{{nil, AllowCompletion, MatchedByNoRule, now.Add(-time.Minute)}}},
		{"force", pod("other", onB), []Demand{a, b}, []Due{{nil, Immediate, Forced, now.Add(-time.Hour)}}},
		{"force of a whole node", pod("other", onA), []Demand{a, {Extent: WholeNode(), Forced: true, Since: now}}, []Due{{nil, Immediate, Forced, now.Add(-time.Minute)}}},
		{"forced, of a system namespace", pod("kube-system", onB), []Demand{b}, nil},
		{"lost to the node", pod("other", onA, notReadySince(time.Hour)), []Demand{a, whole}, nil},
		{"not ready on the GPU", pod("other", onA, notReadySince(time.Hour)), []Demand{a}, []Due{{nil, Immediate, NotReadyTooLong, now.Add(-time.Minute)}}},
		{"stuck on the GPU", pod("other", onA, terminatingUntil(-time.Hour)), []Demand{a}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for i := range tt.want {
				tt.want[i].Pod = tt.pod
			}
			if diff := cmp.Diff(tt.want, Owing([]*corev1.Pod{tt.pod}, tt.demands, policy, now)); diff != "" {
				t.Errorf("owing (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLostAt(t *testing.T) {
	policy := Policy{NotReady: 5 * time.Minute}
	tests := []struct {
		name string
		pod  *corev1.Pod
		want time.Duration
		ok   bool
	}{
		{"ready", pod("web", ready), 0, false},
		{"not ready", pod("web", notReadySince(time.Minute)), 4 * time.Minute, true},
		{"terminating", pod("web", terminatingUntil(time.Minute)), 6 * time.Minute, true},
		{"both", pod("web", terminatingUntil(time.Minute), notReadySince(time.Minute)), 4 * time.Minute, true},
		{"both, stuck first", pod("web", terminatingUntil(-4*time.Minute), notReadySince(time.Minute)), time.Minute, true},
	}
	for _, tt := range tests {
		got, ok := LostAt(tt.pod, policy)
		if ok != tt.ok || ok && !got.Equal(now.Add(tt.want)) {
			t.Errorf("%s: %s %t, want in %s %t", tt.name, got, ok, tt.want, tt.ok)
		}
	}
	if _, ok := LostAt(pod("web", terminatingUntil(0), notReadySince(time.Hour)), Policy{}); ok {
		t.Error("a policy that waits for ever counts a pod as lost")
	}
}
