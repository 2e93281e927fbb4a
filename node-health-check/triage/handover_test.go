package triage

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	healthevent "github.com/nvidia/nvsentinel/api/healthevent/v1alpha1"
	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// The repair that a HealthEventRemediation leads to takes the node's lease: the check
// gives it up once the quarantine has the node, and no earlier.
func TestTheLeaseIsHandedOver(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	bridge := healthevent.GroupVersion.WithKind(healthevent.Kind)
	reboot := schema.GroupVersionKind{Group: "janitor.dgxc.nvidia.com", Version: "v1alpha1", Kind: "RebootNode"}
	of := func(kind schema.GroupVersionKind, age time.Duration) Remediation {
		return Remediation{Kind: kind, Name: "n", UID: kind.Kind, Node: "n", Owned: true, Created: now.Add(-age)}
	}
	tests := map[string]struct {
		state nodemark.State
		there []Remediation
		given bool
	}{
		"reported":                            {"", []Remediation{of(bridge, time.Minute)}, false},
		"in quarantine":                       {nodemark.Quarantined, []Remediation{of(bridge, time.Minute)}, true},
		"drained":                             {nodemark.DrainSucceeded, []Remediation{of(bridge, time.Minute)}, true},
		"given up by the quarantine":          {nodemark.RemediationFailed, []Remediation{of(bridge, time.Minute)}, false},
		"a reboot of ours, and in quarantine": {nodemark.Draining, []Remediation{of(reboot, time.Minute)}, false},
		"a reboot of ours followed":           {nodemark.Draining, []Remediation{of(bridge, time.Hour), of(reboot, time.Minute)}, false},
		"it followed a reboot":                {nodemark.Draining, []Remediation{of(reboot, time.Hour), of(bridge, time.Minute)}, true},
		"in quarantine, and nothing of ours":  {nodemark.Draining, nil, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			check := &v1alpha1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
			check.Spec.MinHealthy = new(intstr.FromInt32(0))
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{}}, Status: corev1.NodeStatus{
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(now.Add(-2 * time.Hour))}},
			}}
			if tt.state != "" {
				n.Labels[nodemark.StateLabel] = string(tt.state)
			}
			plan := Examine(View{
				Check: check, Nodes: []*corev1.Node{n}, Remediations: tt.there,
				Steps:  []Step{{Template: corev1.ObjectReference{Name: "t"}, Kind: bridge, Timeout: 30 * time.Minute}, {Template: corev1.ObjectReference{Name: "u"}, Kind: reboot, Timeout: 30 * time.Minute}},
				Leases: map[string]Lease{"n": {Holder: Holder("c"), Acquired: now, Renewed: now, Duration: leaseTime(30 * time.Minute)}},
			}, now)
			given := false
			for _, a := range plan.Acts {
				if a.Do == Release {
					given = true
					if a.NoRemediationLeft != (len(tt.there) == 0) {
						t.Errorf("gone: %t", a.NoRemediationLeft)
					}
				}
			}
			if given != tt.given {
				t.Errorf("given up: %t, acts %+v", given, plan.Acts)
			}
		})
	}
}
