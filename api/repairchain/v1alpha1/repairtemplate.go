package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Lifecycle is what happens to an object whose template renders differently.
//
// +kubebuilder:validation:Enum=mutable;immutable
type Lifecycle string

// Lifecycles.
const (
	// Mutable objects follow their rendered template for as long as the run lasts.
	Mutable Lifecycle = "mutable"
	// Immutable objects act once: a reboot, a Job.
	Immutable Lifecycle = "immutable"
)

// RepairTemplateSpec defines the object that does a step, and how its outcome is evaluated.
type RepairTemplateSpec struct {
	// Template is the object. Texts in it are Go templates, as those of the repairs in
	// files: {{ .NodeName }}, {{ .HealthEvent.Message }}, {{ .Inputs.url }}. A text that
	// is one expression ending in toJson becomes the value itself. The name is given.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:EmbeddedResource
	Template runtime.RawExtension `json:"template"`
	// Namespace of the object; empty is that of the cluster's objects.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// HealthRule shows how the object is: status.steps[].health of a run contains its
	// result. It decides nothing.
	// +optional
	HealthRule *HealthRule `json:"healthRule,omitempty"`
	// ArtifactTracing ties each output to the inputs that made it.
	// +optional
	ArtifactTracing *ArtifactTracing `json:"artifactTracing,omitempty"`
	// Outputs are what later steps and people read of the object.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Outputs []Output `json:"outputs,omitempty"`
	// Lifecycle of the object.
	// +kubebuilder:default=immutable
	// +optional
	Lifecycle Lifecycle `json:"lifecycle,omitempty"`
}

// ArtifactTracing holds the rule of reading and writing.
type ArtifactTracing struct {
	// HealthRule: the object is read only while its result is Healthy, and written only
	// while it is Healthy or Unhealthy.
	HealthRule HealthRule `json:"healthRule"`
}

// Output is a value of the object.
type Output struct {
	// Name under which later steps read it.
	// +kubebuilder:validation:Pattern="^[a-zA-Z_][a-zA-Z0-9_]{0,62}$"
	Name string `json:"name"`
	// Path to it, as JSONPath: .status.url
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path"`
}

// HealthRule decides when an object is healthy, unhealthy, or neither.
//
// +kubebuilder:validation:XValidation:rule="[has(self.alwaysHealthy), has(self.singleConditionType) && size(self.singleConditionType) > 0, has(self.multiMatch)].filter(x, x).size() == 1",message="exactly one of alwaysHealthy, singleConditionType and multiMatch must be set"
type HealthRule struct {
	// ObservedGenerationPath leads to the generation that the object's controller has
	// seen; until that is metadata.generation nothing else is believed.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	ObservedGenerationPath string `json:"observedGenerationPath,omitempty"`
	// AlwaysHealthy: what exists is healthy.
	// +optional
	AlwaysHealthy *AlwaysHealthy `json:"alwaysHealthy,omitempty"`
	// SingleConditionType is healthy while this condition is True, unhealthy while it is
	// False.
	// +kubebuilder:validation:MaxLength=316
	// +optional
	SingleConditionType string `json:"singleConditionType,omitempty"`
	// MultiMatch is unhealthy if anything of unhealthy matches, else healthy if all of
	// healthy does.
	// +optional
	MultiMatch *MultiMatch `json:"multiMatch,omitempty"`
}

// AlwaysHealthy has no fields.
type AlwaysHealthy struct{}

// MultiMatch are the matchers of both results.
type MultiMatch struct {
	Healthy   Matchers `json:"healthy"`
	Unhealthy Matchers `json:"unhealthy"`
}

// Matchers match conditions and fields.
//
// +kubebuilder:validation:XValidation:rule="(has(self.matchConditions) ? size(self.matchConditions) : 0) + (has(self.matchFields) ? size(self.matchFields) : 0) > 0",message="at least one of matchConditions and matchFields must be given"
type Matchers struct {
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	MatchConditions []ConditionMatcher `json:"matchConditions,omitempty"`
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	MatchFields []FieldMatcher `json:"matchFields,omitempty"`
}

// ConditionMatcher matches a condition by its exact type and status.
type ConditionMatcher struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Type string `json:"type"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Status string `json:"status"`
}

// FieldMatcher compares the value at a path.
//
// +kubebuilder:validation:XValidation:rule="(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",message="values must be given for the operators In and NotIn, and for no other",fieldPath=".values"
type FieldMatcher struct {
	// Key is the path, as JSONPath.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Key string `json:"key"`
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator string `json:"operator"`
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=1024
	// +listType=atomic
	// +optional
	Values []string `json:"values,omitempty"`
	// MessagePath leads to a text that explains the value.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	MessagePath string `json:"messagePath,omitempty"`
}

// RepairTemplateStatus reports whether the template can be used.
type RepairTemplateStatus struct {
	// Conditions: Accepted.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RepairTemplate is an object that does one step of a repair.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=repairtemplates,scope=Cluster
// +kubebuilder:printcolumn:name="Makes",type=string,JSONPath=`.spec.template.kind`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RepairTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec RepairTemplateSpec `json:"spec"`
	// +optional
	Status RepairTemplateStatus `json:"status,omitzero"`
}

// RepairTemplateList is a list of RepairTemplates.
//
// +kubebuilder:object:root=true
type RepairTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []RepairTemplate `json:"items"`
}
