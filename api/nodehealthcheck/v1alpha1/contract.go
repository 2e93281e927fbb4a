package v1alpha1

// What NodeHealthChecks and remediators write for each other (source: medik8s'
// contract for remediators).
const (
	// NodeNameAnnotation on a remediation names its Node.
	NodeNameAnnotation = "remediation.medik8s.io/node-name"
	// TemplateNameAnnotation on a remediation names its template.
	TemplateNameAnnotation = "remediation.medik8s.io/template-name"
	// TimedOutAnnotation on a remediation: it is given up, at this time (RFC 3339).
	TimedOutAnnotation = "remediation.medik8s.io/nhc-timed-out"
	// HealthyDelayAnnotation on a remediation: since when its Node has been
	// healthy (RFC 3339), while healthyDelay keeps the remediation.
	HealthyDelayAnnotation = "remediation.medik8s.io/healthy-delay"
	// OldRemediationAnnotation on a remediation: its age was told once.
	OldRemediationAnnotation = "nodehealthcheck.medik8s.io/old-remediation-cr-flag"
	// MultipleTemplatesAnnotation on a template: there may be several remediations
	// of its kind for a Node, one of each template.
	MultipleTemplatesAnnotation = "remediation.medik8s.io/multiple-templates-support"
	// ConfirmedHealthyAnnotation on a Node: a person says that it is healthy;
	// healthyDelay does not count.
	ConfirmedHealthyAnnotation = "remediation.medik8s.io/manually-confirmed-healthy"

	// ExcludeLabel on a Node: "true" keeps remediations off it.
	ExcludeLabel = "remediation.medik8s.io/exclude-from-remediation"
	// ControlPlaneLabel on a remediation: its Node is of the control plane.
	ControlPlaneLabel = "remediation.medik8s.io/isControlPlaneNode"
	// PartOfLabel on a remediation, with the value PartOf.
	PartOfLabel = "app.kubernetes.io/part-of"
	// PartOf is medik8s' own, by which its tools find remediations.
	PartOf = "node-healthcheck-controller"

	// ConditionSucceeded of a remediation: False when it failed.
	ConditionSucceeded = "Succeeded"
	// ConditionDeletionExpected of a remediation: its Node will not come back.
	ConditionDeletionExpected = "PermanentNodeDeletionExpected"

	// TemplateSuffix ends the kind of every template.
	TemplateSuffix = "Template"
)
