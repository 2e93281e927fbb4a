package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Conditions of a remediation, as medik8s' contract names them, and its finalizer.
const (
	// ConditionProcessing is True while something may come of the event.
	ConditionProcessing = "Processing"
	// ConditionSucceeded is Unknown until the repair has succeeded or failed.
	ConditionSucceeded = "Succeeded"
	// ConditionDeletionExpected is True if the node will not come back.
	ConditionDeletionExpected = "PermanentNodeDeletionExpected"

	// Finalizer keeps a remediation until its fault has been reported as over.
	Finalizer = "nvsentinel.dgxc.nvidia.com/health-event"
)

// HealthEventRemediationSpec describes the fault to report about the node.
type HealthEventRemediationSpec struct {
	// ProcessingStrategy of the event: PROCESS lets it take the node out of service
	// and have it repaired; PERSIST_ONLY only has it stored.
	// +kubebuilder:default=PERSIST_ONLY
	// +kubebuilder:validation:Enum=PERSIST_ONLY;PROCESS
	// +optional
	ProcessingStrategy string `json:"processingStrategy,omitempty"`
	// RecommendedAction that would repair the node.
	// +kubebuilder:default=RESTART_VM
	// +kubebuilder:validation:Enum=RESTART_VM;RESTART_BM;REPLACE_VM;CONTACT_SUPPORT
	// +optional
	RecommendedAction string `json:"recommendedAction,omitempty"`
}

// HealthEventRemediationStatus is the result of the report.
type HealthEventRemediationStatus struct {
	// EventID is that of the fault, once the store has it.
	// +optional
	EventID string `json:"eventID,omitempty"`
	// Conditions Processing, Succeeded and PermanentNodeDeletionExpected.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// HealthEventRemediation reports one node as a health event. It is made from a
// HealthEventRemediationTemplate by a NodeHealthCheck, and by nobody else.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=healtheventremediations,scope=Cluster
// +kubebuilder:printcolumn:name="Strategy",type=string,JSONPath=`.spec.processingStrategy`
// +kubebuilder:printcolumn:name="Processing",type=string,JSONPath=`.status.conditions[?(@.type=="Processing")].reason`
// +kubebuilder:printcolumn:name="Succeeded",type=string,JSONPath=`.status.conditions[?(@.type=="Succeeded")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type HealthEventRemediation struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="what was reported can not be changed"
	// +kubebuilder:default={}
	// +optional
	Spec HealthEventRemediationSpec `json:"spec,omitzero"`
	// +optional
	Status HealthEventRemediationStatus `json:"status,omitzero"`
}

// HealthEventRemediationList is a list of HealthEventRemediations.
//
// +kubebuilder:object:root=true
type HealthEventRemediationList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []HealthEventRemediation `json:"items"`
}

// HealthEventRemediationTemplateSpec holds the objects that a NodeHealthCheck makes.
type HealthEventRemediationTemplateSpec struct {
	// Template of the objects.
	Template HealthEventRemediationTemplateResource `json:"template"`
}

// HealthEventRemediationTemplateResource is a HealthEventRemediation to be.
type HealthEventRemediationTemplateResource struct {
	// Spec of the objects.
	Spec HealthEventRemediationSpec `json:"spec"`
}

// HealthEventRemediationTemplate is what a NodeHealthCheck makes
// HealthEventRemediations from.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=healtheventremediationtemplates,scope=Cluster
type HealthEventRemediationTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec HealthEventRemediationTemplateSpec `json:"spec"`
}

// HealthEventRemediationTemplateList is a list of HealthEventRemediationTemplates.
//
// +kubebuilder:object:root=true
type HealthEventRemediationTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []HealthEventRemediationTemplate `json:"items"`
}
