package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// GPUSelector names GPUs of a node.
//
// +kubebuilder:validation:XValidation:rule="(has(self.uuids) && size(self.uuids) > 0) || (has(self.pciBusIDs) && size(self.pciBusIDs) > 0)",message="a selector names at least one GPU; without a selector all are reset"
type GPUSelector struct {
	// UUIDs as the driver gives them, for example
	// GPU-b850f46d-d5ea-c752-ddf3-c4453e44d3f7.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=40
	// +kubebuilder:validation:items:Pattern=`^GPU-[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$`
	// +listType=atomic
	// +optional
	UUIDs []string `json:"uuids,omitempty"`
	// PCIBusIDs in the form domain:bus:device.function, for example 0000:18:00.0.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=12
	// +kubebuilder:validation:items:Pattern=`^[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]$`
	// +listType=atomic
	// +optional
	PCIBusIDs []string `json:"pciBusIDs,omitempty"`
}

// GPUResetSpec selects the GPUs to reset.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="what is reset is immutable"
type GPUResetSpec struct {
	// NodeName is the Node whose GPUs are reset.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName"`
	// Selector names the GPUs; without it all of the node are reset.
	// +optional
	Selector *GPUSelector `json:"selector,omitempty"`
}

// GPUResetPhase is the progress of a reset.
//
// +kubebuilder:validation:Enum=Pending;InProgress;Terminating;Succeeded;Failed;Unknown
type GPUResetPhase string

// Phases.
const (
	GPUResetPending     GPUResetPhase = "Pending"
	GPUResetInProgress  GPUResetPhase = "InProgress"
	GPUResetTerminating GPUResetPhase = "Terminating"
	GPUResetSucceeded   GPUResetPhase = "Succeeded"
	GPUResetFailed      GPUResetPhase = "Failed"
	GPUResetUnknown     GPUResetPhase = "Unknown"
)

// Types of the conditions of a GPUReset, in their order. One is Unknown until it is
// decided.
const (
	// ConditionReady is True once the reset may begin.
	ConditionReady = "Ready"
	// ConditionServicesTornDown is True when no pod of the GPU services is left on
	// the node.
	ConditionServicesTornDown = "ServicesTornDown"
	// ConditionResetJobCreated is True when the Job exists.
	ConditionResetJobCreated = "ResetJobCreated"
	// ConditionResetJobCompleted is True when the Job has succeeded. In manual mode
	// somebody else sets it.
	ConditionResetJobCompleted = "ResetJobCompleted"
	// ConditionServicesRestored is True when the labels are as they were and the
	// services' pods are Ready.
	ConditionServicesRestored = "ServicesRestored"
	// ConditionComplete is True after a reset and False after a failure.
	ConditionComplete = "Complete"
	// ConditionTerminating is True on an object that was deleted before its end.
	ConditionTerminating = "Terminating"
)

// Reasons of the conditions of a GPUReset, besides those of all kinds.
const (
	// ReasonPending: the janitor has accepted the GPUReset and changed nothing yet. The message shows what it waits
	// for. Action: none at first. If it lasts, correct the cause in the message, such as an absent Node.
	ReasonPending = "Pending"
	// ReasonReadyForReset: the GPUReset has claimed the Node and can start. Action: none.
	ReasonReadyForReset = "ReadyForReset"
	// ReasonResourceContention: another maintenance object claims the Node, or an earlier GPUReset that no longer
	// exists left the GPU services off. The reset waits, or ends if the claim appears while the services are off.
	// Action: none for a claim. In the second case restore the labels of the services and remove the annotation
	// `dgxc.nvidia.com/nvsentinel-reset` from the Node.
	ReasonResourceContention = "ResourceContention"
	// ReasonTearingDownServices: the janitor removes the GPU services from the node by their labels and waits until
	// their pods are gone. Action: none.
	ReasonTearingDownServices = "TearingDownServices"
	// ReasonCreatingResetJob: the GPU services are off, and the janitor creates the Job that resets the GPUs. Action:
	// none.
	ReasonCreatingResetJob = "CreatingResetJob"
	// ReasonResettingGPU: the reset is in progress. Action: none.
	ReasonResettingGPU = "ResettingGPU"
	// ReasonResetJobRunning: the Job that resets the GPUs runs. Action: none.
	ReasonResetJobRunning = "ResetJobRunning"
	// ReasonRestoringServices: the janitor restores the labels of the GPU services and waits until their pods are
	// Ready. Action: none.
	ReasonRestoringServices = "RestoringServices"
	// ReasonFinalizerRestoringServices: the GPUReset was deleted before its end. The janitor restores the labels of
	// the GPU services before the object is removed. Action: none. Do not remove the finalizer.
	ReasonFinalizerRestoringServices = "FinalizerRestoringServices"
	// ReasonServiceTeardownSucceeded: no pod of the GPU services is left on the node. Action: none.
	ReasonServiceTeardownSucceeded = "ServiceTeardownSucceeded"
	// ReasonResetJobCreationSucceeded: the Job that resets the GPUs exists. Action: none.
	ReasonResetJobCreationSucceeded = "ResetJobCreationSucceeded"
	// ReasonResetJobSucceeded: the Job has reset the GPUs. Action: none.
	ReasonResetJobSucceeded = "ResetJobSucceeded"
	// ReasonServiceRestoreSucceeded: the labels of the GPU services have their earlier values again. Action: none.
	ReasonServiceRestoreSucceeded = "ServiceRestoreSucceeded"
	// ReasonGPUResetSucceeded: the GPUs were reset, by the Job, by a reboot or manually, and the GPU services are
	// back. Action: none.
	ReasonGPUResetSucceeded = "GPUResetSucceeded"
	// ReasonNodeNotFound: the Node does not exist, so the GPUReset ends. Action: none if you removed the machine.
	// Otherwise create a new GPUReset with the right `spec.nodeName`.
	ReasonNodeNotFound = "NodeNotFound"
	// ReasonServiceTeardownTimeoutExceeded: pods of the GPU services were still on the node after `teardownTimeout`
	// (5m). The labels are restored and no Job is created. Action: remove the pods that remain
	// (`kubectl get pods -A --field-selector spec.nodeName=<node>`) or increase `teardownTimeout`, then create a new
	// GPUReset.
	ReasonServiceTeardownTimeoutExceeded = "ServiceTeardownTimeoutExceeded"
	// ReasonResetJobCreationFailed: the API server refused the Job, or a Job of another owner has its name. The
	// labels are restored. Action: correct the cause in the message. The namespace of the Job must admit privileged
	// pods. Then create a new GPUReset.
	ReasonResetJobCreationFailed = "ResetJobCreationFailed"
	// ReasonResetJobNotFound: the Job was removed before its end was recorded, so its effect is unknown. The labels
	// are restored. Action: check the GPUs with `nvidia-smi` and create a new GPUReset if needed. Do not delete such
	// Jobs.
	ReasonResetJobNotFound = "ResetJobNotFound"
	// ReasonResetJobFailed: the Job failed or did not end in time. The labels are restored. Action: read the log of
	// the Job `<name>-reset-job`, end the processes that use the GPU, then create a new GPUReset or reboot the node.
	ReasonResetJobFailed = "ResetJobFailed"
	// ReasonRestoreTimeoutExceeded: the GPUs were reset, and a GPU service was not Ready again within
	// `restoreTimeout` (10m). The GPUReset counts as failed. Action: check the pods of the GPU operator on the node.
	ReasonRestoreTimeoutExceeded = "RestoreTimeoutExceeded"
)

// Service is one GPU service as it was before a reset.
type Service struct {
	// Label of the Node that decides whether the service runs there.
	Label string `json:"label"`
	// Value of the label; absent when the Node had no such label.
	// +optional
	Value *string `json:"value,omitempty"`
	// Running: the service had a pod on the node that was up or to come up.
	// +optional
	Running bool `json:"running,omitempty"`
}

// JobReference names the Job of a reset.
type JobReference struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// UID of the Job, once it is known to exist.
	// +optional
	UID string `json:"uid,omitempty"`
}

// GPUResetResult is how a reset ends, as soon as that is known.
type GPUResetResult struct {
	Succeeded bool `json:"succeeded"`
	// Reason and Message of the condition Complete.
	Reason string `json:"reason"`
	// +optional
	Message string `json:"message,omitempty"`
}

// GPUResetStatus is what the janitor knows and did. What it is about to do to the
// node is written here first.
type GPUResetStatus struct {
	// +optional
	Phase GPUResetPhase `json:"phase,omitempty"`
	// StartTime is when the janitor first saw the object.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// CompletionTime is when the outcome was final.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// Machine is the machine whose GPUs are reset; another one is left alone.
	// +optional
	Machine *Machine `json:"machine,omitempty"`
	// BootID is the boot the Node reported when the object was seen; another one
	// proves that the machine was rebooted, which resets its GPUs too.
	// +optional
	BootID string `json:"bootID,omitempty"`
	// Services are the GPU services as they were before the Node's labels were
	// changed; they get these values back.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Services []Service `json:"services,omitempty"`
	// TeardownTime is when the labels were about to be changed.
	// +optional
	TeardownTime *metav1.Time `json:"teardownTime,omitempty"`
	// JobRef is the Job that resets the GPUs, JobTime when it was about to be created.
	// +optional
	JobRef *JobReference `json:"jobRef,omitempty"`
	// +optional
	JobTime *metav1.Time `json:"jobTime,omitempty"`
	// Result is how the reset ends once the services are restored.
	// +optional
	Result *GPUResetResult `json:"result,omitempty"`
	// RestoreTime is when the services were about to be restored.
	// +optional
	RestoreTime *metav1.Time `json:"restoreTime,omitempty"`
	// Conditions Ready, ServicesTornDown, ResetJobCreated, ResetJobCompleted,
	// ServicesRestored, Complete; Terminating on a deleted object; ManualMode where it
	// is configured; and SignalSent=False on an object that ended before it touched
	// the node, which uses up no attempt.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// GPUReset asks for one reset of GPUs of a Node, without a reboot.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=gpuresets,scope=Cluster
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Complete")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 53",message="the name may have 53 characters, so that the Job can be named after it"
type GPUReset struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec GPUResetSpec `json:"spec"`
	// +optional
	Status GPUResetStatus `json:"status,omitzero"`
}

// JobName is the name of the Job of a reset.
func (g *GPUReset) JobName() string { return g.Name + "-reset-job" }

// GPUs are the names that the spec gives, in its order; none means all of the node.
func (g *GPUReset) GPUs() []string {
	if g.Spec.Selector == nil {
		return nil
	}
	return append(append([]string(nil), g.Spec.Selector.UUIDs...), g.Spec.Selector.PCIBusIDs...)
}

// GPUResetList is a list of GPUResets.
//
// +kubebuilder:object:root=true
type GPUResetList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []GPUReset `json:"items"`
}
