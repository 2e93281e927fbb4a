package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Conditions of a RepairRun, as medik8s' contract of remediators names them.
const (
	// ConditionProcessing is True while a step may be under way.
	ConditionProcessing = "Processing"
	// ConditionSucceeded is Unknown until the run has come to its end.
	ConditionSucceeded = "Succeeded"
)

// Reasons of the conditions.
const (
	// ReasonStarted: the run has started and is not over. `status.step` is the current step. Action: none.
	ReasonStarted = "Started"
	// ReasonDone: the run succeeded, because its repair steps are done or `succeedsIf` is true. Action: none.
	ReasonDone = "Done"
	// ReasonStepFailed: a step with `onFailure: stop` failed, so the run failed. Action: read the step in
	// `nvsentinel trace <node>`. fault-remediation retries, escalates or requests manual intervention.
	ReasonStepFailed = "StepFailed"
	// ReasonMisconfigured: a step could not run, or `succeedsIf` could not be evaluated, because the chain or a
	// template is wrong. The run proves nothing about the node, and no further step starts. Action: correct the
	// RepairChain or RepairTemplate that the message names.
	ReasonMisconfigured = "Misconfigured"
	// ReasonOutcomeUnknown: the effect of a step is unknown, because its object was deleted or changed by others, or
	// its name was in use. No further step starts. Action: find out whether the node was repaired
	// (`nvsentinel trace <node>`). Keep other programs from changing the objects of runs.
	ReasonOutcomeUnknown = "OutcomeUnknown"
	// ReasonNotRepaired: no step failed the run, but the node is not repaired. A failed step has no alternative that
	// is done, or no step is done, or `succeedsIf` is false. Action: read the steps in `nvsentinel trace <node>`.
	// fault-remediation retries, escalates or requests manual intervention.
	ReasonNotRepaired = "NotRepaired"
	// ReasonNodeNotFound: the Node of the run does not exist, so the run ended before its first step. Action: create
	// a run whose `spec.nodeName` names a Node that exists.
	ReasonNodeNotFound = "NodeNotFound"
	// ReasonEscalated: a step with `onFailure: escalate` failed, so the run failed and is not retried. Action: none
	// if the action in `onFailure` of the remediation follows. Otherwise read the step in `nvsentinel trace <node>`
	// and repair the node.
	ReasonEscalated = "Escalated"
	// ReasonSessionOver: the quarantine session ended or the run was deleted before the next step started. No further
	// step starts. Action: none.
	ReasonSessionOver = "SessionOver"
	// ReasonRejected: the chain or one of its templates cannot be used, so the run ended before its first step.
	// Action: correct what the condition Accepted of the RepairChain or RepairTemplate names.
	ReasonRejected = "Rejected"
	// ReasonNodeUnnamed: `spec.nodeName` is empty and no NodeHealthCheck owns the run, so it ended before its first
	// step. Action: create the run with `spec.nodeName`.
	ReasonNodeUnnamed = "NodeNameMissing"
	// ReasonNodeExcluded: the node was opted out (`nvsentinel.dgxc.nvidia.com/managed=false`) before the next step
	// started. No further step starts. Action: none if that is intended. Otherwise remove the label and create a new
	// run.
	ReasonNodeExcluded = "NodeExcluded"
	// ReasonTimedOutByNHC: the NodeHealthCheck that owns the run no longer waits for it, so no further step starts.
	// The result of the current step is ignored. Action: none. If a step needs more time, increase the timeout of the
	// NodeHealthCheck.
	ReasonTimedOutByNHC = "TimedOutByNHC"
)

// RepairRunSpec defines which chain runs on which node, and for which fault.
type RepairRunSpec struct {
	// NodeName is the node. Only a run that a NodeHealthCheck owns may do without: it is
	// for the node that its annotation remediation.medik8s.io/node-name names, else for
	// the one it is named after.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// Chain is the RepairChain's name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Chain string `json:"chain"`
	// Fault is what the repair is for.
	// +optional
	Fault Fault `json:"fault,omitzero"`
}

// Fault is the part of a health event that chains read.
type Fault struct {
	// Record is the id of the event's record.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Record string `json:"record,omitempty"`
	// Session is the node's quarantine; no step begins once it is over. Empty is for a
	// repair without quarantine.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Session string `json:"session,omitempty"`
	// Action that was recommended.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Action string `json:"action,omitempty"`
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Agent string `json:"agent,omitempty"`
	// +kubebuilder:validation:MaxLength=253
	// +optional
	CheckName string `json:"checkName,omitempty"`
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ComponentClass string `json:"componentClass,omitempty"`
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=atomic
	// +optional
	ErrorCode []string `json:"errorCode,omitempty"`
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	// +optional
	EntitiesImpacted []Entity `json:"entitiesImpacted,omitempty"`
	// +kubebuilder:validation:MaxLength=16384
	// +optional
	Message string `json:"message,omitempty"`
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	Metadata map[string]string `json:"metadata,omitempty"`
	// GeneratedTimestamp of the event, in the form of RFC 3339: what its format alone
	// takes, such as a small t, cannot be decoded.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=date-time
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +kubebuilder:validation:MaxLength=64
	// +optional
	GeneratedTimestamp metav1.Time `json:"generatedTimestamp,omitzero"`
}

// Entity is something that the fault is about.
type Entity struct {
	// +kubebuilder:validation:MaxLength=253
	EntityType string `json:"entityType"`
	// +kubebuilder:validation:MaxLength=1024
	EntityValue string `json:"entityValue"`
}

// StepState is how far a step is.
//
// +kubebuilder:validation:Enum=Waiting;Running;Done;Failed;Skipped
type StepState string

// Step states.
const (
	StepWaiting StepState = "Waiting"
	StepRunning StepState = "Running"
	StepDone    StepState = "Done"
	StepFailed  StepState = "Failed"
	StepSkipped StepState = "Skipped"
)

// StepStatus is one step's trace: what its object was made of, and what that led to.
type StepStatus struct {
	Name string `json:"name"`
	// State of the step. Done, Failed and Skipped are final.
	State StepState `json:"state"`
	// Reason and Message of the last evaluation.
	// +optional
	Reason string `json:"reason,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
	// Template that the object was made of, with its digest.
	// +optional
	Template *TemplateTrace `json:"template,omitempty"`
	// Object of the step.
	// +optional
	Object *ObjectTrace `json:"object,omitempty"`
	// Health of the object, as evaluated by the template's healthRule. It decides nothing.
	// +optional
	Health *HealthTrace `json:"health,omitempty"`
	// Inputs of which the object was made.
	// +listType=map
	// +listMapKey=name
	// +optional
	Inputs []InputTrace `json:"inputs,omitempty"`
	// Outputs that were read from it.
	// +listType=map
	// +listMapKey=name
	// +optional
	Outputs []OutputTrace `json:"outputs,omitempty"`
	// Stale: the object is not healthy now; the outputs are those of when it was.
	// +optional
	Stale bool `json:"stale,omitempty"`
	// Drifted: somebody changed the object's definition, and it acts only once.
	// +optional
	Drifted bool `json:"drifted,omitempty"`
	// Slot is what the controller has to remember of the object, as JSON.
	// +optional
	Slot string `json:"slot,omitempty"`
	// +optional
	StartedAt metav1.Time `json:"startedAt,omitzero"`
	// +optional
	FinishedAt metav1.Time `json:"finishedAt,omitzero"`
}

// TemplateTrace is a RepairTemplate as it was.
type TemplateTrace struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
}

// ObjectTrace names the object of a step, and the definition that it has.
type ObjectTrace struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// +optional
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// +optional
	UID string `json:"uid,omitempty"`
	// DefinitionDigest and InputDigest are of what was written last, and Generation
	// what that made; ObservedGeneration is what the object's controller has seen.
	// +optional
	DefinitionDigest string `json:"definitionDigest,omitempty"`
	// +optional
	InputDigest string `json:"inputDigest,omitempty"`
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// HealthTrace is the result of a rule for an object.
type HealthTrace struct {
	// State is Healthy, Unhealthy or Unknown.
	State string `json:"state"`
	// +optional
	Reason string `json:"reason,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
}

// InputTrace is a value of which an object was made.
type InputTrace struct {
	Name string `json:"name"`
	// Digest of the value's YAML, "sha256:" and 64 hexadecimal digits.
	Digest string `json:"digest"`
	// Preview is the begin of that YAML.
	// +optional
	Preview string `json:"preview,omitempty"`
}

// OutputTrace is a value that was read of an object, and of which definition it is.
type OutputTrace struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
	// +optional
	Preview string `json:"preview,omitempty"`
	// Value as JSON.
	Value            string `json:"value"`
	DefinitionDigest string `json:"definitionDigest"`
	// +optional
	InputDigest string `json:"inputDigest,omitempty"`
	// LastTransitionTime is when the digest changed last.
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
}

// RepairRunStatus is how far the run is, and what led to what.
type RepairRunStatus struct {
	// Conditions: Processing and Succeeded.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// NodeName is the node that the run was for when it was first seen.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// Chain is the chain as it was when the run began; a change is for later runs.
	// +optional
	Chain *RepairChainSpec `json:"chain,omitempty"`
	// Step that is due; empty when the run has ended.
	// +optional
	Step string `json:"step,omitempty"`
	// Steps in their order.
	// +listType=map
	// +listMapKey=name
	// +optional
	Steps []StepStatus `json:"steps,omitempty"`
}

// RepairRun is one chain at work on one node.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=repairruns,scope=Cluster
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.nodeName`
// +kubebuilder:printcolumn:name="Chain",type=string,JSONPath=`.spec.chain`
// +kubebuilder:printcolumn:name="Step",type=string,JSONPath=`.status.step`
// +kubebuilder:printcolumn:name="Succeeded",type=string,JSONPath=`.status.conditions[?(@.type=="Succeeded")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Succeeded")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RepairRun struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="what a run does can not be changed"
	Spec RepairRunSpec `json:"spec"`
	// +optional
	Status RepairRunStatus `json:"status,omitzero"`
}

// RepairRunList is a list of RepairRuns.
//
// +kubebuilder:object:root=true
type RepairRunList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []RepairRun `json:"items"`
}
