package eviction

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reason is why a pod is left alone or must go.
type Reason string

// Reasons to leave a pod alone.
const (
	// SystemNamespace: the policy excludes the namespace.
	SystemNamespace Reason = "SystemNamespace"
	// DaemonSetPod: its controller would put it back on the same node.
	DaemonSetPod Reason = "DaemonSetPod"
	// StaticPod: the kubelet runs it from a file; the API cannot take it away.
	StaticPod Reason = "StaticPod"
	// FinishedPod: it has succeeded or failed.
	FinishedPod Reason = "FinishedPod"
	// NotReadyTooLong: it does no work any more, its kubelet may be dead;
	// waiting for it could keep the node from its repair for ever.
	NotReadyTooLong Reason = "NotReadyTooLong"
)

// Reasons for the mode of a pod that must go.
const (
	// NamedByRule: a rule names the namespace itself.
	NamedByRule Reason = "NamedByRule"
	// MatchedByRule: a rule's glob matches the namespace.
	MatchedByRule Reason = "MatchedByRule"
	// MatchedByNoRule: UnmatchedMode applies.
	MatchedByNoRule Reason = "MatchedByNoRule"
	// Forced: the event asked to take every pod away at once.
	Forced Reason = "Forced"
)

// Verdict is what has to become of a pod.
type Verdict struct {
	// Go says that the pod must leave before the node is repaired.
	Go bool
	// Mode is how, if it must.
	Mode Mode
}

// MustGo judges one pod at a time.
func MustGo(pod *corev1.Pod, policy Policy, now time.Time) (Verdict, Reason) {
	switch {
	case policy.IsSystem(pod.Namespace):
		return Verdict{}, SystemNamespace
	case isStatic(pod):
		return Verdict{}, StaticPod
	case isDaemon(pod):
		return Verdict{}, DaemonSetPod
	case isFinished(pod):
		return Verdict{}, FinishedPod
	}
	if lost, ok := LostAt(pod, policy); ok && !now.Before(lost) {
		return Verdict{}, NotReadyTooLong
	}
	mode, why := policy.ModeOf(pod.Namespace)
	return Verdict{Go: true, Mode: mode}, why
}

// Due is a pod that still must go, with its mode.
type Due struct {
	Pod  *corev1.Pod
	Mode Mode
	Why  Reason
}

// Pending lists the pods that still must go, in the order given: none means
// that the node is drained.
func Pending(pods []*corev1.Pod, policy Policy, now time.Time) []Due {
	var due []Due
	for _, pod := range pods {
		if v, why := MustGo(pod, policy, now); v.Go {
			due = append(due, Due{Pod: pod, Mode: v.Mode, Why: why})
		}
	}
	return due
}

// LostAt is when a pod that is not ready will count as lost; ok is false when
// it is ready, was never judged, or the policy waits for ever.
func LostAt(pod *corev1.Pod, policy Policy) (at time.Time, ok bool) {
	if policy.NotReady <= 0 {
		return time.Time{}, false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.Add(policy.NotReady), true
		}
	}
	return time.Time{}, false
}

// isStatic knows mirror pods and their sources by the kubelet's annotations,
// and pods that a Node owns.
func isStatic(pod *corev1.Pod) bool {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return true
	}
	if source, ok := pod.Annotations[configSource]; ok && source != configSourceAPI {
		return true
	}
	return ownedBy(pod, "Node")
}

// The kubelet's own annotation that names where a pod's spec came from.
const (
	configSource    = "kubernetes.io/config.source"
	configSourceAPI = "api"
)

func isDaemon(pod *corev1.Pod) bool { return ownedBy(pod, "DaemonSet") }

func ownedBy(pod *corev1.Pod, kind string) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == kind
}

func isFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
