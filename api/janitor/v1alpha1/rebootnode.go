package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RebootNodeSpec names the machine to reboot.
//
// +kubebuilder:validation:XValidation:rule="has(self.nodeName) == has(oldSelf.nodeName)",message="nodeName is immutable"
type RebootNodeSpec struct {
	// NodeName is the Node whose machine is rebooted. Only an object that a
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

// RebootNodeStatus is what the janitor knows and did.
type RebootNodeStatus struct {
	RepairStatus `json:",inline"`

	// PreRebootBootID is the boot the Node reported when the object was seen;
	// another one proves the reboot.
	// +optional
	PreRebootBootID string `json:"preRebootBootID,omitempty"`
	// ObservedBootID is the boot under which the node came back.
	// +optional
	ObservedBootID string `json:"observedBootID,omitempty"`
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

// Target is what the spec says.
func (r *RebootNode) Target() (node string, force bool) { return r.Spec.NodeName, r.Spec.Force }

// Progress is the part of the status that all kinds have.
func (r *RebootNode) Progress() *RepairStatus { return &r.Status.RepairStatus }

// BootID is where the boot id is kept that the Node reported before the signal.
func (r *RebootNode) BootID() *string { return &r.Status.PreRebootBootID }

// RebootNodeList is a list of RebootNodes.
//
// +kubebuilder:object:root=true
type RebootNodeList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []RebootNode `json:"items"`
}
