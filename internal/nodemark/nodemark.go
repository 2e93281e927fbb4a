// Package nodemark names the labels, annotations and taints that the suite sets on Nodes and
// Pods: the contract between the services and with other readers of the cluster. It has no
// clients and no state.
package nodemark

// State is a value of StateLabel.
type State string

// States of a node in quarantine, in the usual order. The label is removed on
// release. The earlier NVSentinel's drain-failed is none: a drain that cannot go on
// waits, and the record shows for what.
const (
	Quarantined          State = "quarantined"
	Draining             State = "draining"
	DrainSucceeded       State = "drain-succeeded"
	Remediating          State = "remediating"
	RemediationSucceeded State = "remediation-succeeded"
	RemediationFailed    State = "remediation-failed"
)

// States lists every State in the usual order.
func States() []State {
	return []State{
		Quarantined, Draining, DrainSucceeded, Remediating, RemediationSucceeded, RemediationFailed,
	}
}

// Labels of Nodes.
const (
	// StateLabel holds a State. Written by fault-quarantine (quarantined,
	// removal), node-drainer (drain...) and fault-remediation (remediat...).
	StateLabel = "dgxc.nvidia.com/nvsentinel-state"
	// ManagedLabel opts a node out when it is ManagedOptOut.
	ManagedLabel = "nvsentinel.dgxc.nvidia.com/managed"
	// FormerManagedLabel is ManagedLabel as other installations of the kind call
	// it; it opts out in the same way.
	FormerManagedLabel = "k8saas.nvidia.com/ManagedByNVSentinel"
	// ManagedOptOut is the only value of both that opts out.
	ManagedOptOut = "false"
	// RepeatOffenderLabel is RepeatOffenderTrue on a node whose machine needed too many repairs. Written
	// by fault-remediation, or by a person; taken off by a person, and by
	// fault-remediation when another machine has the name.
	RepeatOffenderLabel = "dgxc.nvidia.com/nvsentinel-repeat-offender"
	// RepeatOffenderTrue is the only value that marks a repeat offender.
	RepeatOffenderTrue = "true"
)

// Labels of Nodes that show what is on them; labeler writes them, and beside them
// those of CountLabelsOf.
const (
	// DCGMVersionLabel is the version of DCGM: its first number and ".x".
	DCGMVersionLabel = "nvsentinel.dgxc.nvidia.com/dcgm.version"
	// DriverInstalledLabel is "true", or not there.
	DriverInstalledLabel = "nvsentinel.dgxc.nvidia.com/driver.installed"
	// KataEnabledLabel is "true" or "false".
	KataEnabledLabel = "nvsentinel.dgxc.nvidia.com/kata.enabled"
)

// Annotations of Nodes.
const (
	// SessionAnnotation holds the id of the quarantine session, which is the
	// id of the record that opened it. Written by fault-quarantine.
	SessionAnnotation = "dgxc.nvidia.com/nvsentinel-session"
	// UnknownAnnotation lists the ids, with commas, of faults of the session for which
	// the store does not know whether they are over: nothing is drained, repaired or
	// released while it is there. Written by fault-quarantine.
	UnknownAnnotation = "dgxc.nvidia.com/nvsentinel-session-unknown"
	// RepairAnnotation holds the uid of the repair object that claims the
	// node. Written and dropped by the actor (janitor).
	RepairAnnotation = "dgxc.nvidia.com/nvsentinel-repair"
	// ResetAnnotation holds the uid of the GPUReset that took the GPU services off
	// the node, in the same write that changed their labels. Written and dropped by
	// janitor.
	ResetAnnotation = "dgxc.nvidia.com/nvsentinel-reset"

	// QuarantineHealthEvent holds the active faults as a JSON array.
	QuarantineHealthEvent = "quarantineHealthEvent"
	// QuarantineHealthEventAppliedTaints holds the taints that are ours, JSON.
	QuarantineHealthEventAppliedTaints = "quarantineHealthEventAppliedTaints"
	// QuarantineHealthEventAppliedLabels holds the labels that are ours, JSON.
	QuarantineHealthEventAppliedLabels = "quarantineHealthEventAppliedLabels"
	// QuarantineHealthEventIsCordoned is True when the cordon is ours.
	QuarantineHealthEventIsCordoned = "quarantineHealthEventIsCordoned"
	// QuarantineHealthEventCordonPreExisting is True when the node was
	// cordoned by somebody else before us.
	QuarantineHealthEventCordonPreExisting = "quarantineHealthEventCordonPreExisting"
	// QuarantinedNodeUncordonedManually is True after a person uncordoned it.
	QuarantinedNodeUncordonedManually = "quarantinedNodeUncordonedManually"
	// QuarantinedNodeUntaintedManually is True after a person took our taints.
	QuarantinedNodeUntaintedManually = "quarantinedNodeUntaintedManually"

	// ReleasedAnnotation lists the ids, with commas, of the faults that a person's
	// release has ended, until the node's next session: they stay so although the store
	// may forget them and receive them again. Written by fault-quarantine.
	ReleasedAnnotation = "dgxc.nvidia.com/nvsentinel-released-faults"

	// LatestFaultRemediationState holds the repair object per equivalence
	// group, JSON. Written by fault-remediation.
	LatestFaultRemediationState = "latestFaultRemediationState"

	// RepeatOffenderAnnotation holds a RepeatOffender, JSON. Without the label a person has taken that
	// off, and the repairs count no more. Written by fault-remediation.
	RepeatOffenderAnnotation = "dgxc.nvidia.com/nvsentinel-repeat-offender-repairs"

	// True is the value of the annotations that are a yes.
	True = "True"
)

// EventDelivery is the type of the condition by which a connector reports that its node's
// events do not reach the store. It is no check: nothing is decided by it.
const EventDelivery = "EventDelivery"

// DefaultLabelPrefix is the prefix of CordonLabels where none is configured.
const DefaultLabelPrefix = "k8saas.nvidia.com/"

// CordonLabels are the keys of the labels that show who cordoned or uncordoned
// a node, why and when.
type CordonLabels struct {
	CordonBy, CordonReason, CordonTimestamp       string
	UncordonBy, UncordonReason, UncordonTimestamp string
}

// CordonLabelsWith returns the label keys under prefix, for example
// DefaultLabelPrefix.
func CordonLabelsWith(prefix string) CordonLabels {
	return CordonLabels{
		CordonBy:          prefix + "cordon-by",
		CordonReason:      prefix + "cordon-reason",
		CordonTimestamp:   prefix + "cordon-timestamp",
		UncordonBy:        prefix + "uncordon-by",
		UncordonReason:    prefix + "uncordon-reason",
		UncordonTimestamp: prefix + "uncordon-timestamp",
	}
}

// OptedOut reports whether a node's labels take it out of our hands; only the
// literal "false" of one of the two labels does, whatever the other is.
func OptedOut(labels map[string]string) bool {
	return labels[ManagedLabel] == ManagedOptOut || labels[FormerManagedLabel] == ManagedOptOut
}

// UnhealthyReason is the reason of a condition or event of a check that failed.
func UnhealthyReason(checkName string) string { return checkName + "IsNotHealthy" }

// HealthyReason is the reason of a condition of a check that passes; its text is
// record.HealthyMessage.
func HealthyReason(checkName string) string { return checkName + "IsHealthy" }

// CountLabels are the keys of the labels that count the devices of one class:
// how many a node has, how many it should have, and among which nodes that was
// found. Written by labeler.
type CountLabels struct{ Current, Expected, Group string }

// CountLabelsOf are those of a class, "gpu" or "nic" for example.
func CountLabelsOf(class string) CountLabels {
	prefix := "nvsentinel.dgxc.nvidia.com/" + class + ".count."
	return CountLabels{Current: prefix + "current", Expected: prefix + "expected", Group: prefix + "group"}
}
