// Package triage decides what is done about the nodes of a NodeHealthCheck: which
// are unhealthy, whether a further remediation may begin, what is tried next, and
// what is taken away again. It is a function of what was observed, of the check and
// of the time; it reads and writes nothing.
package triage

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
)

// View is what one pass over one NodeHealthCheck sees.
type View struct {
	// Check as it is stored.
	Check *v1alpha1.NodeHealthCheck
	// Problem keeps the check from working; nil when nothing does.
	Problem *Problem
	// Steps are what is tried, in ascending order; those whose template cannot be
	// used are left out, and then there is a Problem.
	Steps []Step
	// Nodes that the selector matches.
	Nodes []*corev1.Node
	// Remediations of the steps' kinds, whatever made them.
	Remediations []Remediation
	// Unread are kinds of which the check has recorded remediations and that cannot
	// be read now: nobody knows whether those are gone.
	Unread map[schema.GroupVersionKind]bool
	// ControlPlane names the control-plane nodes that have a remediation, of any
	// kind and by anybody.
	ControlPlane []string
	// ControlPlaneUnread is why nobody knows whether there are more of them; empty when
	// all kinds could be read.
	ControlPlaneUnread string
	// Leases by the name of their node.
	Leases map[string]Lease
	// Pause is why nothing may begin anywhere; empty when it may.
	Pause string
	// DryRun decides and reports, and begins and removes nothing.
	DryRun bool
}

// Problem is why a check is disabled.
type Problem struct {
	// Reason of the condition Disabled.
	Reason, Message string
	// Retry looks again by the clock: what is missing is not watched for.
	Retry bool
}

// Step is one template and how long a remediation from it may take.
type Step struct {
	// Template that the check refers to.
	Template corev1.ObjectReference
	// Kind of the remediations.
	Kind schema.GroupVersionKind
	// Spec of the remediations.
	Spec map[string]any
	// Timeout after which the next step's turn has come; 0 is never.
	Timeout time.Duration
	// Multiple remediations of the kind may be there for a node, one of each
	// template.
	Multiple bool
}

// Remediation is an object that a remediator works on.
type Remediation struct {
	Kind                 schema.GroupVersionKind
	Namespace, Name, UID string
	// Node it is for, and Template it was made from (empty if it names none).
	Node, Template string
	Created        time.Time
	// Owned by this check.
	Owned bool
	// Deleting: its removal was asked for, and a finalizer keeps it.
	Deleting bool
	// Succeeded is the status of that condition; empty without one.
	Succeeded string
	// DeletionExpected: the remediator reports that the node will not come back.
	DeletionExpected bool
	// Abandoned: it has the annotation by which the remediator knows that it is given up.
	Abandoned bool
	// Delayed: it has the annotation of the healthy delay, with the time
	// HealthySince, which is zero if nobody can read it.
	Delayed      bool
	HealthySince time.Time
	// AgeReported: it was counted as an old one.
	AgeReported bool
}

// Lease is the claim on a node that all remediating services respect.
type Lease struct {
	Holder            string
	Acquired, Renewed time.Time
	Duration          time.Duration
}

// heldByOther reports whether somebody other than holder has the lease at a time.
func (l Lease) heldByOther(holder string, now time.Time) bool {
	return l.Holder != "" && l.Holder != holder && !now.After(l.Renewed.Add(l.Duration))
}

// Holder is the name under which a check holds leases.
func Holder(check string) string { return v1alpha1.Kind + "-" + check }

// makes reports whether a remediation of this kind and template is the step's.
func (s Step) makes(kind schema.GroupVersionKind, template string) bool {
	return s.Kind == kind && (template == "" || template == s.Template.Name)
}

// kindOf is the kind an object reference names.
func kindOf(ref corev1.ObjectReference) schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
}
