package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What a NodeHealthCheck writes on the runs that it makes (source: medik8s' contract
// for remediators).
const (
	// NodeNameAnnotation names the node of a run without spec.nodeName.
	NodeNameAnnotation = "remediation.medik8s.io/node-name"
	// TimedOutAnnotation: the owner has given up on the run, at this time (RFC 3339).
	TimedOutAnnotation = "remediation.medik8s.io/nhc-timed-out"
)

// ObjectsFinalizer keeps a run that has not ended until the objects of its steps are gone.
const ObjectsFinalizer = "nvsentinel.dgxc.nvidia.com/step-objects"

// owner is what a NodeHealthCheck's reference to itself says.
var owner = metav1.TypeMeta{APIVersion: "remediation.medik8s.io/v1alpha1", Kind: "NodeHealthCheck"}

// NodeOf is the node that a run is for: the one it was for when it was first seen, else
// spec.nodeName, else, for a run that a NodeHealthCheck owns, the one that its
// annotation names, or its own name; else nothing.
func NodeOf(run *RepairRun) string {
	switch named := run.Annotations[NodeNameAnnotation]; {
	case run.Status.NodeName != "":
		return run.Status.NodeName
	case run.Spec.NodeName != "":
		return run.Spec.NodeName
	case !OwnedByNodeHealthCheck(run):
		return ""
	case named != "":
		return named
	}
	return run.Name
}

// OwnedByNodeHealthCheck says whether a NodeHealthCheck made the run; it then removes
// it too.
func OwnedByNodeHealthCheck(run *RepairRun) bool {
	return slices.ContainsFunc(run.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.APIVersion == owner.APIVersion && o.Kind == owner.Kind
	})
}

// Abandoned says whether the owner waits for the run no longer.
func Abandoned(run *RepairRun) bool {
	_, is := run.Annotations[TimedOutAnnotation]
	return is
}

// RepairRunTemplateSpec holds the runs that a NodeHealthCheck makes.
type RepairRunTemplateSpec struct {
	// Template of the runs.
	Template RepairRunTemplateResource `json:"template"`
}

// RepairRunTemplateResource is a run to be.
type RepairRunTemplateResource struct {
	// Spec of the runs. Each is for the node that its NodeHealthCheck names.
	// +kubebuilder:validation:XValidation:rule="!has(self.nodeName)",message="a template names no node: each run is for the one that its NodeHealthCheck finds unhealthy"
	Spec RepairRunSpec `json:"spec"`
}

// RepairRunTemplate is what a NodeHealthCheck makes RepairRuns from. The service of
// repair chains does nothing with it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=repairruntemplates,scope=Cluster
// +kubebuilder:printcolumn:name="Chain",type=string,JSONPath=`.spec.template.spec.chain`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RepairRunTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec RepairRunTemplateSpec `json:"spec"`
}

// RepairRunTemplateList is a list of RepairRunTemplates.
//
// +kubebuilder:object:root=true
type RepairRunTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []RepairRunTemplate `json:"items"`
}
