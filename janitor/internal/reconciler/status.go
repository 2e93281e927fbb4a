package reconciler

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/janitor/internal/provider"
	"github.com/nvidia/nvsentinel/janitor/repair"
)

// The functions of this file are the transitions of an object's status. They
// only change the object in memory.

// condition sets one condition and reports whether it changed.
func condition(object v1alpha1.Repair, now time.Time, c metav1.Condition) bool {
	c.LastTransitionTime = metav1.NewTime(now)
	c.ObservedGeneration = object.GetGeneration()
	return meta.SetStatusCondition(&object.Progress().Conditions, c)
}

func signal(status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.ConditionSignalSent, Status: status, Reason: reason, Message: message}
}

// reached is the condition of the kind's goal.
func (k Kind) reached(status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: k.goal, Status: status, Reason: reason, Message: message}
}

// medik8s sets the conditions that a NodeHealthCheck reads.
func medik8s(object v1alpha1.Repair, now time.Time, processing, succeeded metav1.ConditionStatus, reason string) {
	condition(object, now, metav1.Condition{Type: v1alpha1.ConditionProcessing, Status: processing, Reason: reason})
	condition(object, now, metav1.Condition{Type: v1alpha1.ConditionSucceeded, Status: succeeded, Reason: reason})
}

// begin notes the start and, if the Node is there, the intent. The key is the
// object's own uid: it is the same however often it is written.
func (k Kind) begin(object v1alpha1.Repair, node *corev1.Node, now time.Time) (first bool) {
	s := object.Progress()
	if first = s.StartTime == nil; first {
		at := metav1.NewTime(now)
		s.StartTime, s.NodeName = &at, v1alpha1.NodeOf(object)
		condition(object, now, signal(metav1.ConditionUnknown, v1alpha1.ReasonInitializing, "no signal was sent yet"))
		condition(object, now, k.reached(metav1.ConditionUnknown, v1alpha1.ReasonInitializing, "no signal was sent yet"))
		medik8s(object, now, metav1.ConditionTrue, metav1.ConditionUnknown, v1alpha1.ReasonInitializing)
	}
	if s.IdempotencyKey != "" || node == nil || k.needsBoot && node.Status.NodeInfo.BootID == "" {
		return first
	}
	id := kube.NodeIdentity(node)
	s.IdempotencyKey = string(object.GetUID())
	*object.BootID() = id.BootID
	s.Machine = &v1alpha1.Machine{UID: id.UID, ProviderID: id.ProviderID, SystemUUID: id.SystemUUID}
	return first
}

// arm notes that a signal is about to be sent, and leaves before leaveBy. From
// here on it counts as perhaps sent, whatever happens to this process.
func (k Kind) arm(object v1alpha1.Repair, now, leaveBy time.Time) {
	s := object.Progress()
	s.Signals++
	last := metav1.NewTime(leaveBy)
	s.LastSignalAt, s.NotBefore = &last, nil
	if s.SignalSentAt == nil {
		at := metav1.NewTime(now)
		s.SignalSentAt = &at
	}
	condition(object, now, signal(metav1.ConditionUnknown, v1alpha1.ReasonUnacknowledged, "the signal may have been sent"))
	if k.forGood {
		condition(object, now, metav1.Condition{
			Type: v1alpha1.ConditionPermanentNodeDeletionExpected, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonUnacknowledged,
		})
	}
}

// upToSecond is the next whole second: times are stored in seconds.
func upToSecond(at time.Time) time.Time { return at.Add(time.Second - 1).Truncate(time.Second) }

// earlier is what arm replaces: the time of the signal before, and that of its repetition.
type earlier struct{ last, notBefore *metav1.Time }

// disarm takes arm back: it is proven that nothing was sent, so the last signal
// is the one before.
func disarm(object v1alpha1.Repair, now time.Time, before earlier, why *provider.Error) {
	s := object.Progress()
	s.Signals--
	s.LastSignalAt, s.NotBefore = before.last, before.notBefore
	if why.RetryAfter > 0 {
		until := metav1.NewTime(upToSecond(now.Add(why.RetryAfter)))
		s.NotBefore = &until
	}
	if s.Signals > 0 {
		return
	}
	s.SignalSentAt = nil
	condition(object, now, signal(metav1.ConditionUnknown, v1alpha1.ReasonInitializing, "not sent yet: "+why.Error()))
}

// acknowledge notes the plugin's answer, and what is waited for next.
func (k Kind) acknowledge(object v1alpha1.Repair, now time.Time, requestID string) {
	object.Progress().RequestID = requestID
	condition(object, now, signal(metav1.ConditionTrue, v1alpha1.ReasonSucceeded, requestID))
	condition(object, now, k.reached(metav1.ConditionUnknown, string(k.awaits), "waiting for node "+v1alpha1.NodeOf(object)))
}

// unanswered notes that the plugin's answer is not known, or that the plugin wants to be
// asked again after a time whether it has accepted the signal.
func unanswered(object v1alpha1.Repair, now time.Time, why *provider.Error) {
	if why.RetryAfter > 0 {
		until := metav1.NewTime(upToSecond(now.Add(why.RetryAfter)))
		object.Progress().NotBefore = &until
	}
	condition(object, now, signal(metav1.ConditionUnknown, v1alpha1.ReasonUnacknowledged, "the signal may have been sent: "+why.Error()))
}

// complete notes the end.
func complete(object v1alpha1.Repair, now time.Time, succeeded metav1.ConditionStatus, reason string) {
	at := metav1.NewTime(now)
	object.Progress().CompletionTime = &at
	medik8s(object, now, metav1.ConditionFalse, succeeded, reason)
}

// success ends an object whose goal is reached.
func (k Kind) success(object v1alpha1.Repair, node *corev1.Node, why repair.Reason, now time.Time) {
	sent, goal := k.succeed(object, node, why)
	if !meta.IsStatusConditionTrue(object.Progress().Conditions, v1alpha1.ConditionSignalSent) {
		condition(object, now, sent)
	}
	condition(object, now, k.reached(metav1.ConditionTrue, goal.Reason, goal.Message))
	complete(object, now, metav1.ConditionTrue, goal.Reason)
}

// fail ends an object without success. Only an object that certainly sent
// nothing gets SignalSent=False, which uses up no attempt.
func (k Kind) fail(object v1alpha1.Repair, now time.Time, reason, message string) {
	s := object.Progress()
	if s.SignalSentAt == nil && !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionSignalSent) {
		condition(object, now, signal(metav1.ConditionFalse, reason, message))
	} else {
		condition(object, now, k.reached(metav1.ConditionFalse, reason, message))
	}
	if k.forGood && s.SignalSentAt == nil {
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionPermanentNodeDeletionExpected)
	}
	complete(object, now, metav1.ConditionFalse, reason)
}

// refuse ends an object whose signal the plugin refused. A node that does not respond is an
// attempt that counts, so that the next action follows.
func (k Kind) refuse(object v1alpha1.Repair, now time.Time, why *provider.Error) {
	s := object.Progress()
	if why.Unresponsive {
		condition(object, now, signal(metav1.ConditionUnknown, v1alpha1.ReasonNodeUnresponsive, why.Message))
		k.fail(object, now, v1alpha1.ReasonNodeUnresponsive, why.Message)
		return
	}
	s.Signals--
	if s.Signals <= 0 {
		s.SignalSentAt = nil
	}
	k.fail(object, now, v1alpha1.ReasonFailed, "the plugin refused the signal: "+why.Error())
}
