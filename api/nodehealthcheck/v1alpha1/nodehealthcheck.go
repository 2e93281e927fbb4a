package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// NodeHealthCheckSpec defines which nodes are watched, when one is unhealthy, what is
// tried then, and how many may be away at once.
//
// +kubebuilder:validation:XValidation:rule="has(self.remediationTemplate) != (has(self.escalatingRemediations) && size(self.escalatingRemediations) > 0)",message="exactly one of remediationTemplate and escalatingRemediations must be set",fieldPath=".remediationTemplate"
// +kubebuilder:validation:XValidation:rule="has(self.minHealthy) != has(self.maxUnhealthy)",message="exactly one of minHealthy and maxUnhealthy must be set",fieldPath=".minHealthy"
// +kubebuilder:validation:XValidation:rule="!has(self.maxUnhealthy) || !has(self.remediationTemplate) || !(self.remediationTemplate.kind.lowerAscii() in ['machinedeletionremediationtemplate', 'terminatenodetemplate'])",message="maxUnhealthy must not be used with a remediator that deletes nodes: use minHealthy",fieldPath=".maxUnhealthy"
// +kubebuilder:validation:XValidation:rule="!has(self.maxUnhealthy) || !has(self.escalatingRemediations) || !self.escalatingRemediations.exists(r, r.remediationTemplate.kind.lowerAscii() in ['machinedeletionremediationtemplate', 'terminatenodetemplate'])",message="maxUnhealthy must not be used with a remediator that deletes nodes: use minHealthy",fieldPath=".maxUnhealthy"
type NodeHealthCheckSpec struct {
	// Selector of the nodes. It must not be empty, nor match nodes that another
	// NodeHealthCheck matches, nor control-plane nodes together with others.
	Selector NodeSelector `json:"selector"`

	// RemediationTemplate is the object from which a remediation is made for an
	// unhealthy node; it is waited for until the node is healthy.
	// +optional
	RemediationTemplate *TemplateReference `json:"remediationTemplate,omitempty"`

	// EscalatingRemediations are tried one after the other, in ascending order,
	// each until it fails or its timeout is over.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=order
	// +optional
	EscalatingRemediations []EscalatingRemediation `json:"escalatingRemediations,omitempty"`

	// MinHealthy is how many of the nodes must be healthy for a further
	// remediation to begin: a number, or a percentage of the nodes, rounded up.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern="^((100|[0-9]{1,2})%|[0-9]+)$"
	// +kubebuilder:validation:XValidation:rule="type(self) == string || self >= 0",message="must not be negative"
	// +kubebuilder:validation:XValidation:rule="type(self) == string ? self.endsWith('%') || int(self) <= 2147483647 : self <= 2147483647",message="must be at most 2147483647"
	// +optional
	MinHealthy *intstr.IntOrString `json:"minHealthy,omitempty"`

	// MaxUnhealthy is how many of the nodes may be unhealthy for a further
	// remediation to begin: a number, or a percentage of the nodes, rounded up.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern="^((100|[0-9]{1,2})%|[0-9]+)$"
	// +kubebuilder:validation:XValidation:rule="type(self) == string || self >= 0",message="must not be negative"
	// +kubebuilder:validation:XValidation:rule="type(self) == string ? self.endsWith('%') || int(self) <= 2147483647 : self <= 2147483647",message="must be at most 2147483647"
	// +optional
	MaxUnhealthy *intstr.IntOrString `json:"maxUnhealthy,omitempty"`

	// UnhealthyConditions are those of a node of which any one makes it
	// unhealthy. An empty list means the default.
	// +kubebuilder:default={{type:Ready,status:"False",duration:"300s"},{type:Ready,status:"Unknown",duration:"300s"}}
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=type
	// +listMapKey=status
	// +optional
	UnhealthyConditions []UnhealthyCondition `json:"unhealthyConditions,omitempty"`

	// HealthyDelay is how long a node must have been healthy before its
	// remediation is removed. A negative one never removes it: a person does.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^-?([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('876000h') && duration(self) >= duration('-876000h')",message="must be at most 876000h, which is 100 years"
	// +optional
	HealthyDelay *metav1.Duration `json:"healthyDelay,omitempty"`

	// PauseRequests are why no new remediation may begin; those that are under
	// way go on.
	// +kubebuilder:validation:MaxItems=64
	// +optional
	PauseRequests []string `json:"pauseRequests,omitempty"`

	// StormRecoveryThreshold switches storm recovery on: once as many nodes are
	// unhealthy as may be, no remediation begins until no more than these are.
	// +kubebuilder:validation:Minimum=0
	// +optional
	StormRecoveryThreshold *int32 `json:"stormRecoveryThreshold,omitempty"`

	// StormCooldownDuration of medik8s' operator is refused: a storm ends here by
	// stormRecoveryThreshold, and not by the clock.
	// +kubebuilder:validation:XValidation:rule="false",message="is not supported: remove it, and set stormRecoveryThreshold, the number of unhealthy nodes at which a storm ends"
	// +optional
	StormCooldownDuration string `json:"stormCooldownDuration,omitempty"`

	// CountQuarantinedAsHealthy counts a node that NVSentinel has in quarantine
	// by its conditions alone. Without it such a node is not healthy here, so
	// that the budgets of both add up to no more than this one's.
	// +optional
	CountQuarantinedAsHealthy bool `json:"countQuarantinedAsHealthy,omitempty"`
}

// LabelValue is the value of a label.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern="^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
type LabelValue string

// NodeSelector is Kubernetes' label selector, with bounds.
//
// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="must not be empty: it would select every node"
// +structType=atomic
type NodeSelector struct {
	// MatchLabels are labels that a node must have.
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`
	// MatchExpressions must all be true of a node's labels.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	MatchExpressions []NodeRequirement `json:"matchExpressions,omitempty"`
}

// NodeRequirement is one expression over a label.
//
// +kubebuilder:validation:XValidation:rule="(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",message="values must be given for the operators In and NotIn, and for no other",fieldPath=".values"
type NodeRequirement struct {
	// Key of the label.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern="^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
	Key string `json:"key"`
	// Operator relates the label to the values.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator metav1.LabelSelectorOperator `json:"operator"`
	// Values of the operators In and NotIn.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	// +optional
	Values []LabelValue `json:"values,omitempty"`
}

// TemplateReference names the object from which remediations are made.
type TemplateReference struct {
	// APIVersion of the template, such as example.com/v1.
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern="^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[a-z]([-a-z0-9]{0,61}[a-z0-9])?$"
	APIVersion string `json:"apiVersion"`
	// Kind of the template; it is the remediation's with Template after it.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern="^[A-Za-z][-A-Za-z0-9]*Template$"
	Kind string `json:"kind"`
	// Namespace of the template, and of the remediations, if the kind has one.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the template.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// EscalatingRemediation is one step of several.
type EscalatingRemediation struct {
	// RemediationTemplate is the object from which the remediation is made.
	RemediationTemplate TemplateReference `json:"remediationTemplate"`
	// Order among the steps; the lowest is first, and no two are equal.
	Order int32 `json:"order"`
	// Timeout is when the next step follows, if the node is not healthy; at
	// least 60 s, after the remediation's creation.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('60s') && duration(self) <= duration('876000h')",message="must be at least 60s and at most 876000h, which is 100 years"
	Timeout metav1.Duration `json:"timeout"`
}

// UnhealthyCondition makes a node unhealthy that has had a condition of this type
// with this status for longer than the duration.
type UnhealthyCondition struct {
	// Type of the node's condition.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Type corev1.NodeConditionType `json:"type"`
	// Status of the node's condition.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Status corev1.ConditionStatus `json:"status"`
	// Duration for which the condition must have been so.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('876000h')",message="must be at most 876000h, which is 100 years"
	Duration metav1.Duration `json:"duration"`
}

// NodeHealthCheckStatus is what the controller sees and does.
type NodeHealthCheckStatus struct {
	// ObservedNodes is how many nodes the selector matches.
	// +optional
	ObservedNodes *int32 `json:"observedNodes,omitempty"`
	// HealthyNodes is how many of them are healthy and have no remediation.
	// +optional
	HealthyNodes *int32 `json:"healthyNodes,omitempty"`
	// InFlightRemediations is deprecated and never written: see unhealthyNodes.
	// +optional
	InFlightRemediations map[string]metav1.Time `json:"inFlightRemediations,omitempty"`
	// UnhealthyNodes and their remediations, until a node is healthy again and
	// its remediations are gone.
	// +listType=map
	// +listMapKey=name
	// +optional
	UnhealthyNodes []UnhealthyNode `json:"unhealthyNodes,omitempty"`
	// StormRecoveryActive reports whether storm recovery holds back remediations;
	// absent without a stormRecoveryThreshold.
	// +optional
	StormRecoveryActive *bool `json:"stormRecoveryActive,omitempty"`
	// StormRecoveryStartTime is since when it does.
	// +optional
	StormRecoveryStartTime *metav1.Time `json:"stormRecoveryStartTime,omitempty"`
	// Conditions has one type: Disabled, True while something keeps the check
	// from working.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Phase is Disabled, Paused, Remediating or Enabled.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// Reason explains the phase.
	// +optional
	Reason string `json:"reason,omitempty"`
	// LastUpdateTime is when the status last changed.
	// +optional
	LastUpdateTime *metav1.Time `json:"lastUpdateTime,omitempty"`
}

// Phase sums the state of a NodeHealthCheck up.
type Phase string

// The phases; of several that hold the first one is shown.
const (
	PhaseDisabled    Phase = "Disabled"
	PhasePaused      Phase = "Paused"
	PhaseRemediating Phase = "Remediating"
	PhaseEnabled     Phase = "Enabled"
)

// Condition and its reasons.
const (
	ConditionDisabled = "Disabled"
	// ReasonTemplateNotFound: a remediation template or its kind does not exist or cannot be read. The
	// NodeHealthCheck is disabled and checks again every 15 seconds. Action: create the template, install its CRD, or
	// grant the rights with a ClusterRole that has the label
	// `rbac.ext-remediation/aggregate-to-ext-remediation=true`.
	ReasonTemplateNotFound = "RemediationTemplateNotFound"
	// ReasonTemplateInvalid: no remediation can be created from a template, because its kind, its
	// `spec.template.spec` or an annotation is wrong. The NodeHealthCheck is disabled. Action: correct what the
	// message names. Two templates of one kind need the annotation
	// `remediation.medik8s.io/multiple-templates-support`.
	ReasonTemplateInvalid = "RemediationTemplateInvalid"
	// ReasonSpecInvalid: the spec of the NodeHealthCheck is invalid. The check is disabled, and remediations that
	// exist stay. Action: correct the field that the message names.
	ReasonSpecInvalid = "SpecInvalid"
	// ReasonEnabled: nothing prevents the NodeHealthCheck from working. Action: none.
	ReasonEnabled = "NodeHealthCheckEnabled"
)

// UnhealthyNode is one node and what was tried.
type UnhealthyNode struct {
	// Name of the node.
	Name string `json:"name"`
	// Remediations that were begun, in their order.
	// +listType=atomic
	// +optional
	Remediations []Remediation `json:"remediations,omitempty"`
	// ConditionsHealthyTimestamp is since when the node has been healthy again,
	// while its remediations are not gone.
	// +optional
	ConditionsHealthyTimestamp *metav1.Time `json:"conditionsHealthyTimestamp,omitempty"`
	// HealthyDelayed reports that healthyDelay keeps the node's remediations.
	// +optional
	HealthyDelayed *bool `json:"healthyDelayed,omitempty"`
	// Waiting is why no remediation of the node begins, if that is the node's own
	// reason and not the check's, which status.reason has.
	// +optional
	Waiting string `json:"waiting,omitempty"`
}

// Remediation is one remediation object of a node.
type Remediation struct {
	// Resource is the object.
	Resource corev1.ObjectReference `json:"resource"`
	// Started is when the object was created.
	Started metav1.Time `json:"started"`
	// TimedOut is when the next step's turn came: at the timeout or when the
	// remediator reported that it had failed.
	// +optional
	TimedOut *metav1.Time `json:"timedOut,omitempty"`
	// TemplateName is the name of the object's template.
	// +optional
	TemplateName string `json:"templateName,omitempty"`
}

// NodeHealthCheck has the unhealthy ones among some nodes remediated.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=nodehealthchecks,scope=Cluster,shortName=nhc
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Observed",type=integer,JSONPath=`.status.observedNodes`
// +kubebuilder:printcolumn:name="Healthy",type=integer,JSONPath=`.status.healthyNodes`
// +kubebuilder:printcolumn:name="Storm",type=boolean,JSONPath=`.status.stormRecoveryActive`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`,priority=1
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.unhealthyNodes) || !oldSelf.status.unhealthyNodes.exists(n, has(n.remediations) && size(n.remediations) > 0) || self.spec.selector == oldSelf.spec.selector",message="selector: update is prohibited due to running remediation",fieldPath=".spec.selector"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.unhealthyNodes) || !oldSelf.status.unhealthyNodes.exists(n, has(n.remediations) && size(n.remediations) > 0) || (has(self.spec.remediationTemplate) == has(oldSelf.spec.remediationTemplate) && (!has(self.spec.remediationTemplate) || self.spec.remediationTemplate == oldSelf.spec.remediationTemplate))",message="remediationTemplate: update is prohibited due to running remediation",fieldPath=".spec.remediationTemplate"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.unhealthyNodes) || !oldSelf.status.unhealthyNodes.exists(n, has(n.remediations) && size(n.remediations) > 0) || (has(self.spec.escalatingRemediations) == has(oldSelf.spec.escalatingRemediations) && (!has(self.spec.escalatingRemediations) || self.spec.escalatingRemediations == oldSelf.spec.escalatingRemediations))",message="escalatingRemediations: update is prohibited due to running remediation",fieldPath=".spec.escalatingRemediations"
type NodeHealthCheck struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec NodeHealthCheckSpec `json:"spec"`
	// +optional
	Status NodeHealthCheckStatus `json:"status,omitzero"`
}

// NodeHealthCheckList is a list of NodeHealthChecks.
//
// +kubebuilder:object:root=true
type NodeHealthCheckList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []NodeHealthCheck `json:"items"`
}
