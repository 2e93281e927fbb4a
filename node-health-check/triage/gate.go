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

// Blocker is why no remediation begins for an unhealthy node.
type Blocker string

// The holds, in the order in which they are asked about.
const (
	Free                 Blocker = ""
	BlockerDisabled      Blocker = "the check is disabled"
	BlockerPaused        Blocker = "the check is paused"
	BlockerStorm         Blocker = "storm recovery is active"
	BlockerBudget        Blocker = "too few nodes are healthy"
	BlockerEmergencyStop Blocker = "the emergency stop is on"
	BlockerExcluded      Blocker = "the node is excluded by its label"
	BlockerOptedOut      Blocker = "the node is opted out by its label"
	BlockerQuarantine    Blocker = "the node is in quarantine"
	BlockerExternal      Blocker = "the node is under external remediation"
	BlockerControlPlane  Blocker = "another control-plane node is being remediated, going to retry in a minute"
	BlockerUnreadable    Blocker = "the remediation state of other control-plane nodes cannot be read"
	BlockerLease         Blocker = "the node lease is already taken"
	BlockerForeign       Blocker = "a remediation object of another owner exists"
	BlockerRefused       Blocker = "the API server rejects the remediation object"
	BlockerDryRun        Blocker = "this is a dry run"
)

// Retry is after how long a hold is looked at again by the clock; 0 is never, since
// a watch reports its end.
func (b Blocker) Retry() time.Duration {
	if slices.Contains([]Blocker{BlockerControlPlane, BlockerUnreadable, BlockerLease, BlockerForeign, BlockerRefused, BlockerEmergencyStop}, b) {
		return time.Minute
	}
	return 0
}

// CheckWide reports whether the hold is the check's and not the node's.
func (b Blocker) CheckWide() bool {
	return slices.Contains([]Blocker{BlockerDisabled, BlockerPaused, BlockerStorm, BlockerBudget, BlockerEmergencyStop}, b)
}

// GateOf reports whether a check may begin remediations at all.
func GateOf(v View, c Census, s Storm) Blocker {
	switch {
	case v.Problem != nil:
		return BlockerDisabled
	case len(v.Check.Spec.PauseRequests) > 0:
		return BlockerPaused
	case s.Active && c.Open():
		return BlockerStorm
	case !c.Open():
		return BlockerBudget
	case s.Active:
		return BlockerStorm
	case v.Pause != "":
		return BlockerEmergencyStop
	}
	return Free
}

// Gate reports whether a remediation may begin for a node of a check that may begin
// some. busy are the control-plane nodes that have one.
func Gate(v View, n *corev1.Node, busy []string, now time.Time) Blocker {
	switch {
	case n.Labels[v1alpha1.ExcludeLabel] == "true":
		return BlockerExcluded
	case nodemark.OptedOut(n.Labels):
		return BlockerOptedOut
	case InQuarantine(n):
		return BlockerQuarantine
	case slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == externalTaint }):
		return BlockerExternal
	case IsControlPlane(n) && slices.ContainsFunc(busy, func(other string) bool { return other != n.Name }):
		return BlockerControlPlane
	case IsControlPlane(n) && v.ControlPlaneUnread != "":
		return BlockerUnreadable
	case v.Leases[n.Name].heldByOther(Holder(v.Check.Name), now):
		return BlockerLease
	case v.DryRun:
		return BlockerDryRun
	}
	return Free
}

// InQuarantine reports whether the services of the quarantine have the node in hand:
// it is theirs from the quarantine until its release, unless they have given it up.
func InQuarantine(n *corev1.Node) bool {
	state := nodemark.Read(n).State
	return state != "" && state != nodemark.RemediationFailed
}

// Quarantined reports whether the node is out of service in any state of a quarantine.
func Quarantined(n *corev1.Node) bool { return nodemark.Read(n).State != "" }
