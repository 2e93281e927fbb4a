package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TerminateNodeSpec names the machine to terminate.
//
// +kubebuilder:validation:XValidation:rule="has(self.nodeName) == has(oldSelf.nodeName)",message="nodeName is immutable"
type TerminateNodeSpec struct {
	// NodeName is the Node whose machine is returned to the provider. Only an object that a
	// NodeHealthCheck owns, or that names its Node by the annotation
	// remediation.medik8s.io/node-name, may do without.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="nodeName is immutable"
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// Force asks the provider not to wait for the operating system.
	// +kubebuilder:default=false
	// +optional
	Force bool `json:"force,omitempty"`
}

// TerminateNodeStatus is what the janitor knows and did.
type TerminateNodeStatus struct {
	RepairStatus `json:",inline"`

	// LastBootID is the boot the Node reported when the object was seen; a
	// machine that shows another one after a signal gets no second signal.
	// +optional
	LastBootID string `json:"bootID,omitempty"`
}

// TerminateNode requests that the machine behind a Node is returned to the provider. It succeeds
// when the provider has no such machine any more and the Node object is gone.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=terminatenodes,scope=Cluster
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Force",type=boolean,JSONPath=`.spec.force`,priority=1
// +kubebuilder:printcolumn:name="Signal",type=string,JSONPath=`.status.conditions[?(@.type=="SignalSent")].reason`
// +kubebuilder:printcolumn:name="NodeTerminated",type=string,JSONPath=`.status.conditions[?(@.type=="NodeTerminated")].status`
// +kubebuilder:printcolumn:name="Request",type=string,JSONPath=`.status.requestID`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TerminateNode struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec TerminateNodeSpec `json:"spec"`
	// +optional
	Status TerminateNodeStatus `json:"status,omitzero"`
}

// Target is what the spec says.
func (t *TerminateNode) Target() (node string, force bool) { return t.Spec.NodeName, t.Spec.Force }

// Progress is the part of the status that all kinds have.
func (t *TerminateNode) Progress() *RepairStatus { return &t.Status.RepairStatus }

// BootID is where the boot id is kept that the Node reported before the signal.
func (t *TerminateNode) BootID() *string { return &t.Status.LastBootID }

// TerminateNodeList is a list of TerminateNodes.
//
// +kubebuilder:object:root=true
type TerminateNodeList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []TerminateNode `json:"items"`
}
