package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TerminateNodeSpec says which machine to give back.
type TerminateNodeSpec struct {
	// NodeName is the Node whose machine is given back to the provider.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="nodeName is immutable"
	NodeName string `json:"nodeName"`
	// Force asks the provider not to wait for the operating system.
	// +optional
	Force bool `json:"force,omitempty"`
}

// TerminateNodeStatus is what is known of the termination.
type TerminateNodeStatus struct {
	// StartTime is when the object was first acted on.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// CompletionTime is when the outcome was final.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// Conditions SignalSent, NodeTerminated and, where configured, ManualMode.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// TerminateNode asks for the machine behind a Node to be given back.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=terminatenodes,scope=Cluster
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Force",type=boolean,JSONPath=`.spec.force`,priority=1
// +kubebuilder:printcolumn:name="Signal",type=string,JSONPath=`.status.conditions[?(@.type=="SignalSent")].reason`
// +kubebuilder:printcolumn:name="NodeTerminated",type=string,JSONPath=`.status.conditions[?(@.type=="NodeTerminated")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TerminateNode struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec TerminateNodeSpec `json:"spec"`
	// +optional
	Status TerminateNodeStatus `json:"status,omitzero"`
}

// TerminateNodeList is a list of TerminateNodes.
//
// +kubebuilder:object:root=true
type TerminateNodeList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []TerminateNode `json:"items"`
}
