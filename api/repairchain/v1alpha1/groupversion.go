// Package v1alpha1 is the API of repair chains: templates of the objects that do the steps of
// a repair, with rules that say when an object may be read and written, chains of steps in
// which later ones are made of what earlier ones put out, runs, each of which is one chain at
// work on one node, and templates of the runs that a NodeHealthCheck makes.
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

// Kinds.
const (
	TemplateKind    = "RepairTemplate"
	ChainKind       = "RepairChain"
	RunKind         = "RepairRun"
	RunTemplateKind = "RepairRunTemplate"
)

// AddToScheme teaches a scheme the kinds.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &RepairTemplate{}, &RepairTemplateList{}, &RepairChain{}, &RepairChainList{}, &RepairRun{}, &RepairRunList{}, &RepairRunTemplate{}, &RepairRunTemplateList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// ConditionAccepted of a RepairTemplate or RepairChain: False says what is wrong with it.
const ConditionAccepted = "Accepted"
