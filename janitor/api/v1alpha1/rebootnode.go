package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClaimFinalizer keeps an object until its claim on the Node was dropped.
const ClaimFinalizer = "janitor.dgxc.nvidia.com/claim"

// Annotations by which the remediation says why it wants an object.
const (
	// RecordAnnotation is the id of the record that asked for the repair.
	RecordAnnotation = "dgxc.nvidia.com/nvsentinel-record"
	// GroupAnnotation is the equivalence group of the repair.
	GroupAnnotation = "dgxc.nvidia.com/nvsentinel-group"
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
	// ConditionNodeTerminated is True when the machine is gone.
	ConditionNodeTerminated = "NodeTerminated"
	// ConditionManualMode is True when the signal is left to somebody else, who
	// sets ConditionSignalSent.
	ConditionManualMode = "ManualMode"
)

// Reasons of conditions.
const (
	// ReasonInitializing: the janitor has seen the object.
	ReasonInitializing = "Initializing"
	// ReasonBusy: another repair object claims the node.
	ReasonBusy = "Busy"
	// ReasonUnacknowledged: a signal may have been sent; the plugin's answer
	// is not known.
	ReasonUnacknowledged = "Unacknowledged"
	// ReasonSucceeded: the plugin took the signal; the node is back.
	ReasonSucceeded = "Succeeded"
	// ReasonBootChanged: the boot id shows that the machine was rebooted, though
	// the plugin's answer was not seen.
	ReasonBootChanged = "BootChanged"
	// ReasonNotNeeded: the machine was rebooted by somebody else after the
	// object was seen; no signal was sent.
	ReasonNotNeeded = "NotNeeded"
	// ReasonFailed: the plugin refused the signal.
	ReasonFailed = "Failed"
	// ReasonTimeout: the time was up.
	ReasonTimeout = "Timeout"
	// ReasonNodeGone: the Node was absent until the time was up.
	ReasonNodeGone = "NodeGone"
	// ReasonAnotherMachine: another machine has the node's name.
	ReasonAnotherMachine = "AnotherMachine"
	// ReasonNodeExcluded: the operator keeps the janitor off the node, by the
	// opt-out label or by the configuration.
	ReasonNodeExcluded = "NodeExcluded"
	// ReasonSessionOver: the quarantine session the object belongs to is over.
	ReasonSessionOver = "SessionOver"
	// ReasonOutsideActorRequired: manual mode.
	ReasonOutsideActorRequired = "OutsideActorRequired"
)

// RebootNodeSpec says which machine to reboot.
type RebootNodeSpec struct {
	// NodeName is the Node whose machine is rebooted.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="nodeName is immutable"
	NodeName string `json:"nodeName"`
	// Force asks the provider not to wait for the operating system.
	// +optional
	Force bool `json:"force,omitempty"`
}

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

// RebootNodeStatus is what the janitor knows and did. Everything that decides
// about a second signal is written before the first.
type RebootNodeStatus struct {
	// StartTime is when the janitor first saw the object.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// CompletionTime is when the outcome was final.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// IdempotencyKey goes with every signal of this object.
	// +optional
	IdempotencyKey string `json:"idempotencyKey,omitempty"`
	// PreRebootBootID is the boot the Node reported when the object was seen;
	// another one proves the reboot.
	// +optional
	PreRebootBootID string `json:"preRebootBootID,omitempty"`
	// Machine is the machine to reboot; another one is left alone.
	// +optional
	Machine *Machine `json:"machine,omitempty"`
	// SignalSentAt is when the first signal was about to be sent: from then on
	// the machine may have been told.
	// +optional
	SignalSentAt *metav1.Time `json:"signalSentAt,omitempty"`
	// Signals counts the signals that may have been sent.
	// +optional
	Signals int32 `json:"signals,omitempty"`
	// NotBefore is until when the plugin asked to be left alone.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty"`
	// RequestID is the plugin's name for the request it took.
	// +optional
	RequestID string `json:"requestID,omitempty"`
	// ObservedBootID is the boot under which the node came back.
	// +optional
	ObservedBootID string `json:"observedBootID,omitempty"`
	// Conditions SignalSent, NodeReady and, where configured, ManualMode.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RebootNode asks for one reboot of the machine behind a Node. It succeeds when
// the node is Ready under another boot id.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=rebootnodes,scope=Cluster
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Force",type=boolean,JSONPath=`.spec.force`,priority=1
// +kubebuilder:printcolumn:name="Signal",type=string,JSONPath=`.status.conditions[?(@.type=="SignalSent")].reason`
// +kubebuilder:printcolumn:name="NodeReady",type=string,JSONPath=`.status.conditions[?(@.type=="NodeReady")].status`
// +kubebuilder:printcolumn:name="Request",type=string,JSONPath=`.status.requestID`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RebootNode struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec RebootNodeSpec `json:"spec"`
	// +optional
	Status RebootNodeStatus `json:"status,omitzero"`
}

// RebootNodeList is a list of RebootNodes.
//
// +kubebuilder:object:root=true
type RebootNodeList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []RebootNode `json:"items"`
}
