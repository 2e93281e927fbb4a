// Package v1alpha1 is the API of maintenance objects, which ask the janitor to reboot, reset
// or replace the machine of a Node.
//
// +kubebuilder:object:generate=true
// +groupName=janitor.dgxc.nvidia.com
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of the janitor's objects.
var GroupVersion = schema.GroupVersion{Group: "janitor.dgxc.nvidia.com", Version: "v1alpha1"}

// AddToScheme teaches a scheme the janitor's kinds.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&RebootNode{}, &RebootNodeList{}, &RebootNodeTemplate{}, &RebootNodeTemplateList{},
		&TerminateNode{}, &TerminateNodeList{}, &TerminateNodeTemplate{}, &TerminateNodeTemplateList{},
		&GPUReset{}, &GPUResetList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
