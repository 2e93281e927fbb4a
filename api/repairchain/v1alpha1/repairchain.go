package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// OnFailure is what follows a step that failed.
//
// +kubebuilder:validation:Enum=stop;continue;escalate
type OnFailure string

// What follows.
const (
	// Stop fails the run, in which only steps that are always done follow; the repair may
	// be tried again.
	Stop OnFailure = "stop"
	// Continue goes on with the next step: a log that could not be collected, or a repair
	// to which a later step is the alternative (RepairChainSpec.SucceedsIf).
	Continue OnFailure = "continue"
	// Escalate fails the run too, and it is not tried again: the action's onFailure follows.
	Escalate OnFailure = "escalate"
)

// RepairChainSpec is an order of steps.
type RepairChainSpec struct {
	// Steps are done one after the other.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=12
	// +listType=map
	// +listMapKey=name
	Steps []Step `json:"steps"`
	// SucceedsIf is a CEL expression over the same as those of steps. A run in which no
	// step failed the run has succeeded if it is true. Without it, such a run has succeeded
	// if a step is done, and each failed step whose state a later step's when reads has an
	// alternative: such a later step that is done. Steps that are always done don't count.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	SucceedsIf string `json:"succeedsIf,omitempty"`
}

// Step is one object of the repair.
type Step struct {
	// Name of the step, under which later ones find its outputs. A name with a dash is
	// written in brackets in expressions: steps['validate-again'].
	// +kubebuilder:validation:Pattern="^[a-z]([a-z0-9_-]{0,29}[a-z0-9_])?$"
	Name string `json:"name"`
	// Template is the RepairTemplate's name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Template string `json:"template"`
	// Inputs are what the template finds under .Inputs.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Inputs []Input `json:"inputs,omitempty"`
	// When is a CEL expression; the step is skipped unless it is true.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	When string `json:"when,omitempty"`
	// Always: the step begins also when an earlier one has failed the run, for example a
	// ticket that reports it. The others are skipped then.
	// +optional
	Always bool `json:"always,omitempty"`
	// OnFailure is what follows if the step fails.
	// +kubebuilder:default=stop
	// +optional
	OnFailure OnFailure `json:"onFailure,omitempty"`
	// Timeout is how long the step's object may be without a result. Then it failed.
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('168h')",message="must be more than 0s and at most 168h"
	// +optional
	Timeout metav1.Duration `json:"timeout,omitzero"`
}

// Input is a value of which a step's object is made.
type Input struct {
	// Name under which the template finds it.
	// +kubebuilder:validation:Pattern="^[a-zA-Z_][a-zA-Z0-9_]{0,62}$"
	Name string `json:"name"`
	// Value is a CEL expression over fault, action, node, outputs, steps and
	// messages: outputs.collect.url, fault.errorCode[0].
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Value string `json:"value"`
}

// RepairChainStatus reports whether the chain can be used.
type RepairChainStatus struct {
	// Conditions: Accepted.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RepairChain is what is done to a node, step by step.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=repairchains,scope=Cluster
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RepairChain struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec RepairChainSpec `json:"spec"`
	// +optional
	Status RepairChainStatus `json:"status,omitzero"`
}

// RepairChainList is a list of RepairChains.
//
// +kubebuilder:object:root=true
type RepairChainList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []RepairChain `json:"items"`
}
