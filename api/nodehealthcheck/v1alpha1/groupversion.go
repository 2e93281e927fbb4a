// Package v1alpha1 is the API of NodeHealthChecks, which define the nodes to watch, when a
// node is unhealthy, and the remediations to try in order. Group, kind and fields are those of
// medik8s, so that its remediators and its users' objects fit.
//
// +kubebuilder:object:generate=true
// +groupName=remediation.medik8s.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of NodeHealthCheck.
var GroupVersion = schema.GroupVersion{Group: "remediation.medik8s.io", Version: "v1alpha1"}

// Kind of the objects.
const Kind = "NodeHealthCheck"

// AddToScheme teaches a scheme the kind.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &NodeHealthCheck{}, &NodeHealthCheckList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
