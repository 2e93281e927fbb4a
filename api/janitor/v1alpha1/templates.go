package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RebootNodeTemplateSpec holds the objects that a NodeHealthCheck makes.
type RebootNodeTemplateSpec struct {
	// Template of the objects.
	Template RebootNodeTemplateResource `json:"template"`
}

// RebootNodeTemplateResource is a RebootNode to be.
type RebootNodeTemplateResource struct {
	// Spec of the objects. Without a nodeName, which a template should not have,
	// an object is for the Node that its NodeHealthCheck names.
	Spec RebootNodeSpec `json:"spec"`
}

// RebootNodeTemplate is what a NodeHealthCheck makes RebootNodes from. The
// janitor does nothing with it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=rebootnodetemplates,scope=Cluster
type RebootNodeTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec RebootNodeTemplateSpec `json:"spec"`
}

// RebootNodeTemplateList is a list of RebootNodeTemplates.
//
// +kubebuilder:object:root=true
type RebootNodeTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []RebootNodeTemplate `json:"items"`
}

// TerminateNodeTemplateSpec holds the objects that a NodeHealthCheck makes.
type TerminateNodeTemplateSpec struct {
	// Template of the objects.
	Template TerminateNodeTemplateResource `json:"template"`
}

// TerminateNodeTemplateResource is a TerminateNode to be.
type TerminateNodeTemplateResource struct {
	// Spec of the objects. Without a nodeName, which a template should not have,
	// an object is for the Node that its NodeHealthCheck names.
	Spec TerminateNodeSpec `json:"spec"`
}

// TerminateNodeTemplate is what a NodeHealthCheck makes TerminateNodes from. The
// janitor does nothing with it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=terminatenodetemplates,scope=Cluster
type TerminateNodeTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec TerminateNodeTemplateSpec `json:"spec"`
}

// TerminateNodeTemplateList is a list of TerminateNodeTemplates.
//
// +kubebuilder:object:root=true
type TerminateNodeTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []TerminateNodeTemplate `json:"items"`
}
