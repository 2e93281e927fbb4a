// Package bridge decides what is done about one HealthEventRemediation: when its node
// is reported as a fault, when as healthy again, and what is reported about the repair. It
// reads and writes nothing.
//
// Nothing is remembered between two steps but the object itself. The ids, numbers and
// times of its two events are functions of the object, so that a repeated step publishes
// nothing new.
package bridge

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	check "github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/internal/nodemark"

	"github.com/nvidia/nvsentinel/api/healthevent/v1alpha1"
)

// Step is what is to be done next.
type Step string

// Steps.
const (
	// WriteConditions: nothing but to write down the conditions, if they are others.
	WriteConditions Step = "rest"
	// Guard the object with the finalizer, then decide again: a fault that is
	// reported has to be reported as over before the object goes.
	Guard Step = "guard"
	// Report the fault, then note its id.
	Report Step = "report"
	// Recover: report that the fault is over, then take the finalizer off.
	Recover Step = "recover"
)

// Reason of the conditions.
type Reason string

// Reasons.
const (
	// Reporting: the node is about to be reported as a health event. Action: none.
	Reporting Reason = "Reporting"
	// Reported: the health event is stored, and no quarantine session has started yet. Action: none at first. If it
	// lasts, check with `nvsentinel why <node>` whether a rule set matches the event or a budget holds it.
	Reported Reason = "Reported"
	// ObservedOnly: the event is stored with the strategy PERSIST_ONLY, so nothing acts on the node. Action: none if
	// that is intended. Otherwise set `processingStrategy: PROCESS` in the HealthEventRemediationTemplate.
	ObservedOnly Reason = "ObservedOnly"
	// Released: the quarantine session ended without a successful remediation, for example by a release, and the
	// NodeHealthCheck still finds the node unhealthy. Action: check the node. The next step of the NodeHealthCheck
	// follows at its timeout.
	Released Reason = "Released"
	// Replaced: the action was REPLACE_VM and the Node is gone, so the remediation succeeded. Action: none.
	Replaced Reason = "NodeReplaced"

	// NotOfACheck: no NodeHealthCheck owns the HealthEventRemediation, so nothing is reported. Action: delete the
	// object. Only node-health-check creates such objects.
	NotOfACheck Reason = "NotOwnedByNodeHealthCheck"
	// NoNode: the Node does not exist, so nothing is reported. Action: none.
	NoNode Reason = "NodeNotFound"
	// TimedOut: the NodeHealthCheck no longer waits for this remediation. The quarantine session continues, and the
	// next step of the check waits for its end. Action: none.
	TimedOut Reason = "TimedOutByNHC"
	// QuarantineFailed: the node is in a quarantine session whose remediation already failed, so nothing is reported.
	// Action: see `nvsentinel why <node>`, repair the node, then run `nvsentinel release <node>`. The next step of
	// the NodeHealthCheck follows if it has one.
	QuarantineFailed Reason = "RepairFailedBefore"
	// Refused: the connector refused the health event permanently, so nothing is reported. Action: correct the cause
	// in the message, such as a publisher that the connector does not accept.
	Refused Reason = "EventRefused"
)

// reasons of the states of a quarantine.
var reasons = map[nodemark.State]Reason{
	nodemark.Quarantined: "Quarantined", nodemark.Draining: "Draining", nodemark.DrainSucceeded: "Drained",
	nodemark.Remediating:          "Remediating",
	nodemark.RemediationSucceeded: "RemediationSucceeded", nodemark.RemediationFailed: "RemediationFailed",
}

// Decision is the next step and what the conditions report before it.
type Decision struct {
	Do      Step
	Reason  Reason
	Message string
	// Processing and Succeeded are the conditions' status.
	Processing, Succeeded metav1.ConditionStatus
	// NodeDeleted: the node will not come back.
	NodeDeleted bool
}

// NodeOf is the node that a remediation is for: the one its NodeHealthCheck names. It
// is empty for an object that no NodeHealthCheck owns.
func NodeOf(o *v1alpha1.HealthEventRemediation) string {
	if owner(o) == "" {
		return ""
	}
	if name := o.Annotations[check.NodeNameAnnotation]; name != "" {
		return name
	}
	return o.Name
}

// owner is the NodeHealthCheck's name.
func owner(o *v1alpha1.HealthEventRemediation) string {
	for _, ref := range o.OwnerReferences {
		if ref.Kind == check.Kind && ref.APIVersion == check.GroupVersion.String() {
			return ref.Name
		}
	}
	return ""
}

// Decide decides one step. node is the remediation's as it is now; nil if there is
// none.
func Decide(o *v1alpha1.HealthEventRemediation, node *corev1.Node) Decision {
	guarded := slices.Contains(o.Finalizers, v1alpha1.Finalizer)
	if o.DeletionTimestamp != nil {
		if guarded {
			return Decision{Do: Recover}
		}
		return Decision{Do: WriteConditions}
	}
	if s := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionSucceeded); s != nil && s.Status != metav1.ConditionUnknown {
		return Decision{Do: WriteConditions} // it has an outcome, whatever comes after
	}
	if NodeOf(o) == "" {
		return failed(NotOfACheck, "no NodeHealthCheck owns it: nothing is reported")
	}
	if _, given := o.Annotations[check.TimedOutAnnotation]; given {
		return failed(TimedOut, "the NodeHealthCheck has timed out the remediation")
	}
	if o.Status.EventID != "" {
		return mirror(o, node)
	}
	if !guarded {
		if node == nil {
			return failed(NoNode, "the node does not exist: nothing is reported")
		}
		if nodemark.Read(node).State == nodemark.RemediationFailed {
			return failed(QuarantineFailed, "the node is in a quarantine session with a failed remediation: nothing is reported")
		}
	}
	d := Decision{
		Do: Report, Reason: Reporting, Message: "the node is being reported",
		Processing: metav1.ConditionTrue, Succeeded: metav1.ConditionUnknown, NodeDeleted: replaces(o),
	}
	if !guarded {
		d.Do = Guard
	}
	return d
}

// mirror is what the marks of the node show of the repair.
func mirror(o *v1alpha1.HealthEventRemediation, node *corev1.Node) Decision {
	d := Decision{Do: WriteConditions, Processing: metav1.ConditionTrue, Succeeded: metav1.ConditionUnknown, NodeDeleted: replaces(o)}
	before := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionSucceeded)
	state := nodemark.Read(node).State
	switch {
	case !acts(o):
		d.Reason, d.Message, d.Processing = ObservedOnly, "the event is stored, no action is taken for the node (PERSIST_ONLY)", metav1.ConditionFalse
	case node == nil && d.NodeDeleted:
		d.Reason, d.Message = Replaced, "the node was removed as intended"
		d.Processing, d.Succeeded = metav1.ConditionFalse, metav1.ConditionTrue
	case state == nodemark.RemediationSucceeded:
		d.Reason, d.Message = reasons[state], "the remediation of the node has succeeded"
		d.Processing, d.Succeeded = metav1.ConditionFalse, metav1.ConditionTrue
	case state == nodemark.RemediationFailed:
		d.Reason, d.Message = reasons[state], "the remediation of the node has failed"
		d.Processing, d.Succeeded = metav1.ConditionFalse, metav1.ConditionFalse
	case state != "":
		d.Reason, d.Message = reasonOf(state), "the node is in quarantine"
	case before != nil && (before.Reason == string(Released) || slices.Contains(inQuarantine(), Reason(before.Reason))):
		d.Reason, d.Message, d.Processing = Released, "the quarantine session of the node has ended, but the node is unhealthy", metav1.ConditionFalse
	default:
		d.Reason, d.Message = Reported, "the event is stored, the node is not in quarantine yet"
	}
	return d
}

// reasonOf returns the reason of a state; that of an unknown state is Quarantined.
func reasonOf(s nodemark.State) Reason {
	if r, known := reasons[s]; known {
		return r
	}
	return "Quarantined"
}

// inQuarantine are the reasons that a node in quarantine gives.
func inQuarantine() []Reason {
	var out []Reason
	for _, s := range nodemark.States() {
		out = append(out, reasons[s])
	}
	return out
}

// acts reports whether the event may change the cluster: only if its strategy is PROCESS.
func acts(o *v1alpha1.HealthEventRemediation) bool {
	return o.Spec.ProcessingStrategy == protos.ProcessingStrategy_PROCESS.String()
}

// replaces reports whether the node will not come back.
func replaces(o *v1alpha1.HealthEventRemediation) bool {
	return acts(o) && o.Spec.RecommendedAction == protos.RecommendedAction_REPLACE_VM.String()
}

// failed is the outcome of a remediation that comes to nothing.
func failed(why Reason, message string) Decision {
	return Decision{Do: WriteConditions, Reason: why, Message: message, Processing: metav1.ConditionFalse, Succeeded: metav1.ConditionFalse}
}

// Refusal is the outcome of a remediation whose event is refused for good.
func Refusal(message string) Decision { return failed(Refused, message) }

// Write writes a decision into the conditions and reports whether any of them changed.
func (d Decision) Write(o *v1alpha1.HealthEventRemediation, now metav1.Time) bool {
	if d.Reason == "" {
		return false
	}
	set := func(kind string, status metav1.ConditionStatus) bool {
		return meta.SetStatusCondition(&o.Status.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: string(d.Reason), Message: d.Message, LastTransitionTime: now,
		})
	}
	changed := set(v1alpha1.ConditionProcessing, d.Processing)
	changed = set(v1alpha1.ConditionSucceeded, d.Succeeded) || changed
	if d.NodeDeleted {
		changed = set(v1alpha1.ConditionDeletionExpected, metav1.ConditionTrue) || changed
	}
	return changed
}
