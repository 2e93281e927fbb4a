// Package v1alpha1 is the API with which a NodeHealthCheck hands a node to the quarantine: its
// remediator reports the node as a health event, so that quarantine, drain and repair do the
// work, and mirrors what comes of it.
//
// +kubebuilder:object:generate=true
// +groupName=nvsentinel.dgxc.nvidia.com
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of the kinds.
var GroupVersion = schema.GroupVersion{Group: "nvsentinel.dgxc.nvidia.com", Version: "v1alpha1"}

// Kind of the remediations.
const Kind = "HealthEventRemediation"

// AddToScheme teaches a scheme the kinds.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &HealthEventRemediation{}, &HealthEventRemediationList{},
		&HealthEventRemediationTemplate{}, &HealthEventRemediationTemplateList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
