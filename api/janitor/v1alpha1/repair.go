package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ClaimFinalizer keeps an object until its claim on the Node was dropped.
const ClaimFinalizer = "janitor.dgxc.nvidia.com/claim"

// Annotations by which the remediation says why it wants an object.
const (
	// RecordAnnotation is the id of the record that asked for the repair.
	RecordAnnotation = "dgxc.nvidia.com/nvsentinel-record"
	// GroupAnnotation is the equivalence group of the repair.
	GroupAnnotation = "dgxc.nvidia.com/nvsentinel-group"
)

// What a medik8s NodeHealthCheck writes on the objects it owns (source:
// medik8s' contract for remediators).
const (
	// NodeNameAnnotation names the Node of an object without spec.nodeName.
	NodeNameAnnotation = "remediation.medik8s.io/node-name"
	// TimedOutAnnotation: the owner has given up on the object.
	TimedOutAnnotation = "remediation.medik8s.io/nhc-timed-out"
	// NodeHealthCheckKind is the owner's kind.
	NodeHealthCheckKind = "NodeHealthCheck"
)

// Types of conditions.
const (
	// ConditionSignalSent is True once the plugin took the signal, False if
	// none was or will be sent, Unknown while it may have been sent. Its message
	// is the plugin's request id when True.
	ConditionSignalSent = "SignalSent"
	// ConditionNodeReady is True when the node is back under another boot id,
	// False when it did not come back.
	ConditionNodeReady = "NodeReady"
	// ConditionNodeTerminated is True when the machine is gone, and its Node
	// with it; False when it is not.
	ConditionNodeTerminated = "NodeTerminated"
	// ConditionManualMode is True when the signal is left to somebody else, who
	// sets ConditionSignalSent.
	ConditionManualMode = "ManualMode"
	// ConditionProcessing is medik8s' word for a repair that is under way.
	ConditionProcessing = "Processing"
	// ConditionSucceeded is medik8s' word for the outcome; Unknown before it.
	ConditionSucceeded = "Succeeded"
	// ConditionPermanentNodeDeletionExpected tells medik8s that the Node will
	// not come back; set before a termination is sent.
	ConditionPermanentNodeDeletionExpected = "PermanentNodeDeletionExpected"
)

// Reasons of conditions.
const (
	// ReasonInitializing: the janitor has seen the object.
	ReasonInitializing = "Initializing"
	// ReasonBusy: another repair object claims the node.
	ReasonBusy = "Busy"
	// ReasonSessionUnknown: the store cannot tell of all faults of the node's
	// session; nothing is sent until it can, or a person releases the node.
	ReasonSessionUnknown = "SessionUnknown"
	// ReasonMarksLifted: somebody lifted a mark of the node's session, which is no
	// release; nothing is sent until fault-quarantine has restored it.
	ReasonMarksLifted = "MarksLifted"
	// ReasonUnacknowledged: a signal may have been sent; the plugin's answer
	// is not known.
	ReasonUnacknowledged = "Unacknowledged"
	// ReasonSucceeded: the plugin took the signal; the node is back, or gone.
	ReasonSucceeded = "Succeeded"
	// ReasonBootChanged: the boot id shows that the machine was rebooted, though
	// the plugin's answer was not seen.
	ReasonBootChanged = "BootChanged"
	// ReasonMachineGone: the provider says that the machine is gone, though its
	// answer to the signal was not seen.
	ReasonMachineGone = "MachineGone"
	// ReasonReplaced: the signal was taken and another machine has the node's
	// name since.
	ReasonReplaced = "Replaced"
	// ReasonNotNeeded: the machine was rebooted by somebody else after the
	// object was seen; no signal was sent.
	ReasonNotNeeded = "NotNeeded"
	// ReasonFailed: the plugin refused the signal.
	ReasonFailed = "Failed"
	// ReasonTimeout: the time was up.
	ReasonTimeout = "Timeout"
	// ReasonNodeGone: the Node was absent until the time was up.
	ReasonNodeGone = "NodeGone"
	// ReasonNodeUnnamed: the object does not say which Node it is for.
	ReasonNodeUnnamed = "NodeUnnamed"
	// ReasonAnotherMachine: another machine has the node's name.
	ReasonAnotherMachine = "AnotherMachine"
	// ReasonNodeExcluded: the operator keeps the janitor off the node, by the
	// opt-out label or by the configuration.
	ReasonNodeExcluded = "NodeExcluded"
	// ReasonSessionOver: the quarantine session the object belongs to is over.
	ReasonSessionOver = "SessionOver"
	// ReasonOutsideActorRequired: manual mode.
	ReasonOutsideActorRequired = "OutsideActorRequired"
	// ReasonTimedOutByNHC: the NodeHealthCheck that owns the object gave it up.
	ReasonTimedOutByNHC = "TimedOutByNHC"
)

// Machine is one sighting of the machine behind a Node's name.
type Machine struct {
	// UID of the Node object.
	// +optional
	UID string `json:"uid,omitempty"`
	// ProviderID the provider gave the machine.
	// +optional
	ProviderID string `json:"providerID,omitempty"`
	// SystemUUID of the machine's firmware.
	// +optional
	SystemUUID string `json:"systemUUID,omitempty"`
}

// RepairStatus is what the janitor knows and did about an object of any of its
// kinds. Everything that decides about a second signal is written before the
// first.
type RepairStatus struct {
	// StartTime is when the janitor first saw the object.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// CompletionTime is when the outcome was final.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// NodeName is the Node that the object was for when it was first seen.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// IdempotencyKey goes with every signal of this object.
	// +optional
	IdempotencyKey string `json:"idempotencyKey,omitempty"`
	// Machine is the machine to repair; another one is left alone.
	// +optional
	Machine *Machine `json:"machine,omitempty"`
	// SignalSentAt is when the first signal was about to be sent: from then on
	// the machine may have been told.
	// +optional
	SignalSentAt *metav1.Time `json:"signalSentAt,omitempty"`
	// LastSignalAt is the moment before which the last signal left, if it did.
	// +optional
	LastSignalAt *metav1.Time `json:"lastSignalAt,omitempty"`
	// Signals counts the signals that may have been sent.
	// +optional
	Signals int32 `json:"signals,omitempty"`
	// NotBefore is until when the plugin asked to be left alone.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty"`
	// RequestID is the plugin's name for the request it took.
	// +optional
	RequestID string `json:"requestID,omitempty"`
	// Conditions SignalSent, NodeReady or NodeTerminated and, where configured,
	// ManualMode; beside them those that medik8s reads: Processing, Succeeded
	// and PermanentNodeDeletionExpected.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Repair is what the janitor's kinds have in common.
//
// +kubebuilder:object:generate=false
type Repair interface {
	metav1.Object
	runtime.Object
	// Asked is what the spec says: the Node, which may be empty, and whether
	// the provider shall not wait for the operating system.
	Asked() (node string, force bool)
	// Progress is the part of the status that all kinds have.
	Progress() *RepairStatus
	// BootID is where the boot id is kept that the Node reported when the object
	// was seen.
	BootID() *string
}

// NodeOf is the Node an object is for: the one it was for when it was first
// seen, else spec.nodeName, else the annotation of a NodeHealthCheck, else, for
// an object that one owns, its own name; else nothing.
func NodeOf(r Repair) string {
	if name := r.Progress().NodeName; name != "" {
		return name
	}
	if name, _ := r.Asked(); name != "" {
		return name
	}
	if name := r.GetAnnotations()[NodeNameAnnotation]; name != "" {
		return name
	}
	if OwnedByNodeHealthCheck(r) {
		return r.GetName()
	}
	return ""
}

// OwnedByNodeHealthCheck says whether a NodeHealthCheck made the object; it then
// removes it too.
func OwnedByNodeHealthCheck(r Repair) bool {
	return slices.ContainsFunc(r.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.Kind == NodeHealthCheckKind })
}
