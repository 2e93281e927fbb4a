package nodemark_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// TestTheContract repeats the names other programs read, so that a rename here
// is noticed.
func TestTheContract(t *testing.T) {
	want := map[string]string{
		"state":           "dgxc.nvidia.com/nvsentinel-state",
		"managed":         "nvsentinel.dgxc.nvidia.com/managed",
		"managed before":  "k8saas.nvidia.com/ManagedByNVSentinel",
		"session":         "dgxc.nvidia.com/nvsentinel-session",
		"released":        "dgxc.nvidia.com/nvsentinel-released-faults",
		"repair":          "dgxc.nvidia.com/nvsentinel-repair",
		"faults":          "quarantineHealthEvent",
		"taints":          "quarantineHealthEventAppliedTaints",
		"labels":          "quarantineHealthEventAppliedLabels",
		"cordoned":        "quarantineHealthEventIsCordoned",
		"pre-existing":    "quarantineHealthEventCordonPreExisting",
		"uncordoned":      "quarantinedNodeUncordonedManually",
		"untainted":       "quarantinedNodeUntaintedManually",
		"remediation":     "latestFaultRemediationState",
		"devices":         "dgxc.nvidia.com/devices",
		"default prefix":  "k8saas.nvidia.com/",
		"unhealthy check": "GpuAllWatchIsNotHealthy",
		"healthy check":   "GpuAllWatchIsHealthy",
	}
	got := map[string]string{
		"state":           nodemark.StateLabel,
		"managed":         nodemark.ManagedLabel,
		"managed before":  nodemark.FormerManagedLabel,
		"session":         nodemark.SessionAnnotation,
		"released":        nodemark.ReleasedAnnotation,
		"repair":          nodemark.RepairAnnotation,
		"faults":          nodemark.QuarantineHealthEvent,
		"taints":          nodemark.QuarantineHealthEventAppliedTaints,
		"labels":          nodemark.QuarantineHealthEventAppliedLabels,
		"cordoned":        nodemark.QuarantineHealthEventIsCordoned,
		"pre-existing":    nodemark.QuarantineHealthEventCordonPreExisting,
		"uncordoned":      nodemark.QuarantinedNodeUncordonedManually,
		"untainted":       nodemark.QuarantinedNodeUntaintedManually,
		"remediation":     nodemark.LatestFaultRemediationState,
		"devices":         nodemark.DevicesAnnotation,
		"default prefix":  nodemark.DefaultLabelPrefix,
		"unhealthy check": nodemark.UnhealthyReason("GpuAllWatch"),
		"healthy check":   nodemark.HealthyReason("GpuAllWatch"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	states := []nodemark.State{
		"quarantined", "draining", "drain-succeeded", "remediating", "remediation-succeeded", "remediation-failed",
	}
	if diff := cmp.Diff(states, nodemark.States()); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
}

func TestCordonLabelsWith(t *testing.T) {
	want := nodemark.CordonLabels{
		CordonBy: "x/cordon-by", CordonReason: "x/cordon-reason", CordonTimestamp: "x/cordon-timestamp",
		UncordonBy: "x/uncordon-by", UncordonReason: "x/uncordon-reason", UncordonTimestamp: "x/uncordon-timestamp",
	}
	if diff := cmp.Diff(want, nodemark.CordonLabelsWith("x/")); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

func TestOptedOut(t *testing.T) {
	for value, want := range map[string]bool{"false": true, "False": false, "0": false, "": false, "true": false} {
		for _, label := range []string{nodemark.ManagedLabel, nodemark.FormerManagedLabel} {
			if got := nodemark.OptedOut(map[string]string{label: value}); got != want {
				t.Errorf("%s=%q opts out: %v, want %v", label, value, got, want)
			}
		}
	}
	if !nodemark.OptedOut(map[string]string{nodemark.ManagedLabel: "true", nodemark.FormerManagedLabel: "false"}) {
		t.Error("one of the labels opts out, and the node is not")
	}
	if nodemark.OptedOut(nil) {
		t.Error("a node without labels is opted out")
	}
}
