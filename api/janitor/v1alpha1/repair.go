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
	// ReasonInitializing: the janitor has accepted the object and sent no request yet. The message shows what it
	// waits for, such as the Node or the plugin. Action: none at first. If it lasts, correct the cause in the message
	// before the time (`global.timeout`, 25m) is over.
	ReasonInitializing = "Initializing"
	// ReasonBusy: another maintenance object claims the Node, so the janitor sends no request. It waits until that
	// object ends or its own time (`global.timeout`, 25m) is over. Action: none, or delete the other object if it is
	// not needed.
	ReasonBusy = "Busy"
	// ReasonSessionUnknown: the store does not contain all faults of the quarantine session, so the janitor sends no
	// request. It waits until the records are back, or you release the node, or its time is over. Action: if the
	// records do not return within minutes, inspect the node and run `nvsentinel release <node>`. See the page Back
	// up and restore.
	ReasonSessionUnknown = "SessionUnknown"
	// ReasonMarksLifted: the cordon or a taint of the session was removed without a release, so the janitor sends no
	// request until fault-quarantine restores it. Action: none if it happens once. If it repeats, stop the program
	// that removes the mark. The Event MarksRestored names it.
	ReasonMarksLifted = "MarksLifted"
	// ReasonUnacknowledged: a request may have been sent, and the answer of the plugin is not known. The janitor
	// observes the node and retries with the same key if no effect shows. Action: none at first. If it lasts, check
	// the plugin and its log.
	ReasonUnacknowledged = "Unacknowledged"
	// ReasonSucceeded: the plugin accepted the request, or the goal is reached (the node is Ready again, or the
	// machine is gone). Action: none.
	ReasonSucceeded = "Succeeded"
	// ReasonBootChanged: the answer of the plugin was not seen, and the new boot ID of the node proves the reboot.
	// Action: none.
	ReasonBootChanged = "BootChanged"
	// ReasonMachineGone: the answer of the plugin was not seen, and the provider reports that the machine is gone.
	// Action: none.
	ReasonMachineGone = "MachineGone"
	// ReasonReplaced: the plugin accepted the termination, and another machine has registered under the name of the
	// node. Its Node object stays. Action: none.
	ReasonReplaced = "Replaced"
	// ReasonNotNeeded: the machine rebooted after the janitor had noted its boot ID and before anything was sent. No
	// request or Job follows. Action: none.
	ReasonNotNeeded = "NotNeeded"
	// ReasonFailed: the plugin refused the request permanently, so the object ends. The attempt does not count.
	// Action: correct the cause in the message, such as provider rights or an unknown machine. See the page Write a
	// plugin.
	ReasonFailed = "Failed"
	// ReasonNodeUnresponsive: the plugin reboots the node through the node itself, and its kubelet did not react, so
	// the object ends. The attempt counts. Action: none. The next action of the policy follows, such as a replacement.
	// Without one, check the kubelet of the node or its BMC.
	ReasonNodeUnresponsive = "NodeUnresponsive"
	// ReasonTimeout: the time of the object (`global.timeout`, 25m) is over before the goal was reached. Action: read
	// the last message of the condition and check the plugin, the provider and the machine. fault-remediation retries
	// or escalates.
	ReasonTimeout = "Timeout"
	// ReasonNodeGone: the Node object was absent until the time of the object was over. Action: none if you removed
	// the machine. Otherwise start it so that its kubelet registers the Node again.
	ReasonNodeGone = "NodeGone"
	// ReasonNodeUnnamed: `spec.nodeName` is empty and no NodeHealthCheck owns the object, so it ends without a
	// request. Action: create the object with `spec.nodeName`.
	ReasonNodeUnnamed = "NodeNameMissing"
	// ReasonAnotherMachine: another machine has the name of the node, so the object ends without a further request.
	// Action: none, or create a new object if the present machine needs the repair.
	ReasonAnotherMachine = "AnotherMachine"
	// ReasonNodeExcluded: the node is opted out by its label (`nvsentinel.dgxc.nvidia.com/managed=false`) or excluded
	// in the configuration of the janitor, so no request is sent. Action: none if that is intended. Otherwise remove
	// the label or the entry in `exclusions`.
	ReasonNodeExcluded = "NodeExcluded"
	// ReasonSessionOver: the quarantine session of the object ended before a request was sent, so nothing is done.
	// The attempt does not count. Action: none.
	ReasonSessionOver = "SessionOver"
	// ReasonOutsideActorRequired: manual mode (`manualMode`) is on, so the janitor sends no request and waits for
	// you. Action: do what the message asks for, then set the condition that it names to True.
	ReasonOutsideActorRequired = "OutsideActorRequired"
	// ReasonTimedOutByNHC: the NodeHealthCheck that owns the object no longer waits for it, so the object ends. A
	// request that was sent is not taken back. Action: none. The next remediation of the NodeHealthCheck follows.
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
	// the machine may have received it.
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
	// Target is what the spec says: the Node, which may be empty, and whether
	// the provider shall not wait for the operating system.
	Target() (node string, force bool)
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
	if name, _ := r.Target(); name != "" {
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
