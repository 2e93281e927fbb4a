package reconciler

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/janitor/repair"
)

// outcomeOf translates a verdict that ends an object.
func (k Kind) outcomeOf(v repair.Verdict, object v1alpha1.Repair) (reason, message string) {
	node := v1alpha1.NodeOf(object)
	switch v.Reason { //nolint:exhaustive // only these reasons end an object
	case repair.NodeUnnamed:
		return v1alpha1.ReasonNodeUnnamed, "spec.nodeName is empty, and no NodeHealthCheck names a node"
	case repair.GivenUp:
		return v1alpha1.ReasonTimedOutByNHC, "the object's NodeHealthCheck has timed it out"
	case repair.NodeGone:
		return v1alpha1.ReasonNodeGone, "node " + node + " does not exist"
	}
	if reason, message := Ended(v.Reason, node); reason != v1alpha1.ReasonTimeout {
		return reason, message
	}
	return v1alpha1.ReasonTimeout, "the timeout expired before node " + node + " " + k.hoped + finalError(object)
}

// finalError returns why nothing was sent until the end, such as what the provider
// answered to every try; empty if something may have been sent, which keeps its own
// condition.
func finalError(object v1alpha1.Repair) string {
	s := object.Progress()
	last := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionSignalSent)
	if s.SignalSentAt != nil || last == nil || last.Status != metav1.ConditionUnknown || last.Message == "" {
		return ""
	}
	return ", most recently: " + last.Message
}

// Ended translates a reason for which any kind of object ends: any reason not listed is
// that the time was up.
func Ended(why repair.Reason, node string) (reason, message string) {
	switch why { //nolint:exhaustive // only these reasons end an object
	case repair.AnotherMachine:
		return v1alpha1.ReasonAnotherMachine, "another machine has the node name " + node
	case repair.NoSession:
		return v1alpha1.ReasonSessionOver, "the quarantine session of node " + node + " has ended"
	case repair.OtherSession:
		return v1alpha1.ReasonSessionOver, "node " + node + " is in another quarantine session"
	case repair.NodeExcluded:
		return v1alpha1.ReasonNodeExcluded, "node " + node + " is opted out by its label " + nodemark.ManagedLabel + " or excluded by the janitor's configuration"
	case repair.NodeSchedulable:
		return v1alpha1.ReasonSessionOver, "node " + node + " is schedulable again"
	}
	return v1alpha1.ReasonTimeout, "the timeout expired while node " + node + " was pending"
}

// waiting shows in the conditions what an object waits for and reports whether
// that is news.
func (k Kind) waiting(object v1alpha1.Repair, node *corev1.Node, v repair.Verdict, now time.Time) bool {
	name := v1alpha1.NodeOf(object)
	switch v.Reason { //nolint:exhaustive // the others need no words
	case repair.Busy:
		return condition(object, now, k.waits(object, v1alpha1.ReasonBusy,
			"node "+name+" is claimed by the maintenance object with uid "+NodeFacts(node).Claim))
	case repair.SessionUnknown:
		return condition(object, now, k.waits(object, v1alpha1.ReasonSessionUnknown,
			"no signal is sent: the store does not show the state of all faults in the quarantine session of node "+name+", see its annotation "+nodemark.UnknownAnnotation))
	case repair.MarksLifted:
		return condition(object, now, k.waits(object, v1alpha1.ReasonMarksLifted,
			"no signal is sent: another client removed the cordon or a taint of the quarantine session of node "+name+", and fault-quarantine has not restored it yet"))
	case repair.Manual:
		return condition(object, now, metav1.Condition{
			Type: v1alpha1.ConditionManualMode, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonOutsideActorRequired,
			Message: k.action + " node " + name + ", then set the condition SignalSent to True",
		})
	case repair.NodeAbsent, repair.BootUnknown, repair.MachineUnknown:
		return condition(object, now, k.waits(object, v1alpha1.ReasonInitializing, "waiting for node "+name+": "+string(v.Reason)))
	case repair.BootUnchanged, repair.NotReady, repair.PluginNotReady, repair.MachineThere:
		return condition(object, now, k.reached(metav1.ConditionUnknown, string(v.Reason), "waiting for node "+name))
	}
	return false
}

// waits is the condition that shows a wait: SignalSent while nothing was sent,
// the kind's goal after that.
func (k Kind) waits(object v1alpha1.Repair, reason, message string) metav1.Condition {
	if object.Progress().SignalSentAt == nil {
		return signal(metav1.ConditionUnknown, reason, message)
	}
	return k.reached(metav1.ConditionUnknown, reason, message)
}
