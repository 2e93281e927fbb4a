package rebootnode

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/janitor/api/v1alpha1"
	"github.com/nvidia/nvsentinel/janitor/internal/provider"
	"github.com/nvidia/nvsentinel/janitor/reboot"
)

// The functions of this file are the transitions of an object's status. They
// only change the object in memory.

// condition sets one condition and says whether it changed.
func condition(object *v1alpha1.RebootNode, now time.Time, c metav1.Condition) bool {
	c.LastTransitionTime = metav1.NewTime(now)
	c.ObservedGeneration = object.Generation
	return meta.SetStatusCondition(&object.Status.Conditions, c)
}

func signal(status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.ConditionSignalSent, Status: status, Reason: reason, Message: message}
}

func ready(status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.ConditionNodeReady, Status: status, Reason: reason, Message: message}
}

// begin notes the start and, if the Node is there, the intent. The key is the
// object's own uid: it is the same however often it is written.
func begin(object *v1alpha1.RebootNode, node *corev1.Node, now time.Time) {
	s := &object.Status
	if s.StartTime == nil {
		at := metav1.NewTime(now)
		s.StartTime = &at
		condition(object, now, signal(metav1.ConditionUnknown, v1alpha1.ReasonInitializing, "nothing was sent yet"))
		condition(object, now, ready(metav1.ConditionUnknown, v1alpha1.ReasonInitializing, "nothing was sent yet"))
	}
	if s.IdempotencyKey != "" || node == nil || node.Status.NodeInfo.BootID == "" {
		return
	}
	id := kube.NodeIdentity(node)
	s.IdempotencyKey = string(object.UID)
	s.PreRebootBootID = id.BootID
	s.Machine = &v1alpha1.Machine{UID: id.UID, ProviderID: id.ProviderID, SystemUUID: id.SystemUUID}
}

// arm notes that a signal is about to be sent. From here on it counts as
// perhaps sent, whatever happens to this process.
func arm(object *v1alpha1.RebootNode, now time.Time) {
	s := &object.Status
	s.Signals++
	if s.SignalSentAt == nil {
		at := metav1.NewTime(now)
		s.SignalSentAt = &at
	}
	condition(object, now, signal(metav1.ConditionUnknown, v1alpha1.ReasonUnacknowledged, "the signal may have been sent"))
}

// disarm takes arm back: it is proven that nothing was sent. The moment until
// which the plugin asked to be left alone is stored in whole seconds, rounded up.
func disarm(object *v1alpha1.RebootNode, now time.Time, why *provider.Error) {
	s := &object.Status
	s.Signals--
	if why.RetryAfter > 0 {
		until := metav1.NewTime(now.Add(why.RetryAfter + time.Second - 1).Truncate(time.Second))
		s.NotBefore = &until
	}
	if s.Signals > 0 {
		return
	}
	s.SignalSentAt = nil
	condition(object, now, signal(metav1.ConditionUnknown, v1alpha1.ReasonInitializing, "not sent yet: "+why.Error()))
}

// acknowledge notes the plugin's answer.
func acknowledge(object *v1alpha1.RebootNode, now time.Time, requestID string) {
	object.Status.RequestID = requestID
	condition(object, now, signal(metav1.ConditionTrue, v1alpha1.ReasonSucceeded, requestID))
}

// unanswered notes that the plugin's answer is not known.
func unanswered(object *v1alpha1.RebootNode, now time.Time, why *provider.Error) {
	condition(object, now, signal(metav1.ConditionUnknown, v1alpha1.ReasonUnacknowledged, "the signal may have been sent: "+why.Error()))
}

// complete notes the end.
func complete(object *v1alpha1.RebootNode, now time.Time) {
	at := metav1.NewTime(now)
	object.Status.CompletionTime = &at
}

// succeed ends an object whose node is back under another boot id. Without an
// answer of the plugin the boot id tells that the signal arrived; without a
// signal it tells that none was needed.
func succeed(object *v1alpha1.RebootNode, node *corev1.Node, now time.Time) {
	s := &object.Status
	boot := node.Status.NodeInfo.BootID
	s.ObservedBootID = boot
	switch {
	case meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionSignalSent):
	case s.Signals > 0:
		condition(object, now, signal(metav1.ConditionTrue, v1alpha1.ReasonBootChanged, "no answer was seen, but the boot id changed"))
	default:
		condition(object, now, signal(metav1.ConditionUnknown, v1alpha1.ReasonNotNeeded, "the node was rebooted without a signal"))
	}
	condition(object, now, ready(metav1.ConditionTrue, v1alpha1.ReasonSucceeded,
		fmt.Sprintf("boot %s was replaced by %s", s.PreRebootBootID, boot)))
	complete(object, now)
}

// fail ends an object without success. Only an object that certainly sent
// nothing gets SignalSent=False, which uses up no attempt.
func fail(object *v1alpha1.RebootNode, now time.Time, reason, message string) {
	if object.Status.SignalSentAt == nil && !meta.IsStatusConditionTrue(object.Status.Conditions, v1alpha1.ConditionSignalSent) {
		condition(object, now, signal(metav1.ConditionFalse, reason, message))
	} else {
		condition(object, now, ready(metav1.ConditionFalse, reason, message))
	}
	complete(object, now)
}

// refuse ends an object whose signal the plugin refused.
func refuse(object *v1alpha1.RebootNode, now time.Time, why *provider.Error) {
	s := &object.Status
	s.Signals--
	if s.Signals <= 0 {
		s.SignalSentAt = nil
	}
	fail(object, now, v1alpha1.ReasonFailed, "the plugin refused the signal: "+why.Error())
}

// outcomeOf translates a verdict that ends an object.
func outcomeOf(v reboot.Verdict, object *v1alpha1.RebootNode) (reason, message string) {
	node := object.Spec.NodeName
	switch v.Reason { //nolint:exhaustive // only these reasons end an object
	case reboot.NodeGone:
		return v1alpha1.ReasonNodeGone, "node " + node + " is absent"
	case reboot.AnotherMachine:
		return v1alpha1.ReasonAnotherMachine, "another machine has the name " + node
	case reboot.NoSession:
		return v1alpha1.ReasonSessionOver, "the quarantine session of node " + node + " is over"
	case reboot.OtherSession:
		return v1alpha1.ReasonSessionOver, "node " + node + " is in another quarantine session"
	case reboot.NodeExcluded:
		return v1alpha1.ReasonNodeExcluded, "node " + node + " is opted out by its label " + nodemark.ManagedLabel + " or excluded by the janitor's configuration"
	case reboot.NodeSchedulable:
		return v1alpha1.ReasonSessionOver, "node " + node + " is schedulable again"
	}
	return v1alpha1.ReasonTimeout, "the time was up before node " + node + " was Ready under another boot id"
}

// waiting shows in the conditions what an object waits for and says whether
// that is news.
func waiting(object *v1alpha1.RebootNode, node *corev1.Node, v reboot.Verdict, now time.Time) bool {
	name := object.Spec.NodeName
	switch v.Reason { //nolint:exhaustive // the others need no words
	case reboot.Busy:
		return condition(object, now, waits(object, v1alpha1.ReasonBusy,
			"node "+name+" is claimed by the repair object with uid "+nodeFacts(node).Claim))
	case reboot.Manual:
		return condition(object, now, metav1.Condition{
			Type: v1alpha1.ConditionManualMode, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonOutsideActorRequired,
			Message: "reboot node " + name + ", then set the condition SignalSent to True",
		})
	case reboot.NodeAbsent, reboot.BootUnknown, reboot.MachineUnknown:
		return condition(object, now, waits(object, v1alpha1.ReasonInitializing, "waiting for node "+name+": "+string(v.Reason)))
	case reboot.BootUnchanged, reboot.NotReady, reboot.PluginNotReady:
		return condition(object, now, ready(metav1.ConditionUnknown, string(v.Reason), "waiting for node "+name))
	}
	return false
}

// waits is the condition that shows a wait: SignalSent while nothing was sent,
// NodeReady after that.
func waits(object *v1alpha1.RebootNode, reason, message string) metav1.Condition {
	if object.Status.SignalSentAt == nil {
		return signal(metav1.ConditionUnknown, reason, message)
	}
	return ready(metav1.ConditionUnknown, reason, message)
}
