package triage

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// externalTaint is on a node that somebody outside of the cluster repairs.
const externalTaint = "nvsentinel.dgxc.nvidia.com/external-remediation"

// Hold is why no remediation begins for an unhealthy node.
type Hold string

// The holds, in the order in which they are asked about.
const (
	Free             Hold = ""
	HoldDisabled     Hold = "the check is disabled"
	HoldPaused       Hold = "the check is paused"
	HoldStorm        Hold = "storm recovery is active"
	HoldBudget       Hold = "too few nodes are healthy"
	HoldBrake        Hold = "the emergency stop is on"
	HoldExcluded     Hold = "the node is excluded by its label"
	HoldOptedOut     Hold = "the node is opted out by its label"
	HoldPipeline     Hold = "the node is in quarantine"
	HoldExternal     Hold = "the node is under external remediation"
	HoldControlPlane Hold = "another control-plane node is being remediated, going to retry in a minute"
	HoldUnread       Hold = "the remediation state of other control-plane nodes cannot be read"
	HoldLease        Hold = "the node lease is already taken"
	HoldForeign      Hold = "a remediation object of another owner exists"
	HoldRefused      Hold = "the API server rejects the remediation object"
	HoldDryRun       Hold = "this is a dry run"
)

// Retry is after how long a hold is looked at again by the clock; 0 is never, since
// a watch tells of its end.
func (h Hold) Retry() time.Duration {
	if slices.Contains([]Hold{HoldControlPlane, HoldUnread, HoldLease, HoldForeign, HoldRefused, HoldBrake}, h) {
		return time.Minute
	}
	return 0
}

// Whole says whether the hold is the check's and not the node's.
func (h Hold) Whole() bool {
	return slices.Contains([]Hold{HoldDisabled, HoldPaused, HoldStorm, HoldBudget, HoldBrake}, h)
}

// GateOf says whether a check may begin remediations at all.
func GateOf(v View, c Census, s Storm) Hold {
	switch {
	case v.Problem != nil:
		return HoldDisabled
	case len(v.Check.Spec.PauseRequests) > 0:
		return HoldPaused
	case s.Active && c.Open():
		return HoldStorm
	case !c.Open():
		return HoldBudget
	case s.Active:
		return HoldStorm
	case v.Brake != "":
		return HoldBrake
	}
	return Free
}

// Gate says whether a remediation may begin for a node of a check that may begin
// some. busy are the control-plane nodes that have one.
func Gate(v View, n *corev1.Node, busy []string, now time.Time) Hold {
	switch {
	case n.Labels[v1alpha1.ExcludeLabel] == "true":
		return HoldExcluded
	case nodemark.OptedOut(n.Labels):
		return HoldOptedOut
	case HeldByPipeline(n):
		return HoldPipeline
	case slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == externalTaint }):
		return HoldExternal
	case IsControlPlane(n) && slices.ContainsFunc(busy, func(other string) bool { return other != n.Name }):
		return HoldControlPlane
	case IsControlPlane(n) && v.ControlPlaneUnread != "":
		return HoldUnread
	case v.Leases[n.Name].heldByOther(Holder(v.Check.Name), now):
		return HoldLease
	case v.DryRun:
		return HoldDryRun
	}
	return Free
}

// HeldByPipeline says whether the services of the quarantine have the node in hand:
// it is theirs from the quarantine until its release, unless they have given it up.
func HeldByPipeline(n *corev1.Node) bool {
	state := nodemark.Read(n).State
	return state != "" && state != nodemark.RemediationFailed
}

// Quarantined says whether the node is out of service in any state of a quarantine.
func Quarantined(n *corev1.Node) bool { return nodemark.Read(n).State != "" }
