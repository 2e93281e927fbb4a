package eviction

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reason is why a pod is left alone or must go.
type Reason string

// Reasons to leave a pod alone.
const (
	// SystemNamespace: the namespace of the pod is in `systemNamespaces`, so the pod stays on the node. Action: none.
	SystemNamespace Reason = "SystemNamespace"
	// DaemonSetPod: a DaemonSet owns the pod and would start it on the same node again, so the pod stays. Action:
	// none.
	DaemonSetPod Reason = "DaemonSetPod"
	// StaticPod: the kubelet runs the pod from a file and no eviction removes it, so the pod stays. Action: none.
	StaticPod Reason = "StaticPod"
	// FinishedPod: the pod has succeeded or failed, so it does not hold up the drain. Action: none.
	FinishedPod Reason = "FinishedPod"
	// NotReadyTooLong: the pod has not been Ready for `notReadyTimeoutMinutes`, so it no longer holds up the drain of
	// a whole node. Action: none. The repair of the machine ends the pod.
	NotReadyTooLong Reason = "NotReadyTooLong"
	// StuckTerminating: the pod is still there `notReadyTimeoutMinutes` after its grace period, so it no longer holds
	// up the drain. Action: none, or remove the finalizer that keeps the pod. The repair of the machine ends others.
	StuckTerminating Reason = "StuckTerminating"
)

// Reasons for the mode of a pod that must go.
const (
	// NamedByRule: a rule in `userNamespaces` names the namespace of the pod and gives its mode. Action: none.
	NamedByRule Reason = "NamedByRule"
	// MatchedByRule: the pattern of a rule in `userNamespaces` matches the namespace of the pod and gives its mode.
	// Action: none.
	MatchedByRule Reason = "MatchedByRule"
	// MatchedByAll: a rule in `userNamespaces` that matches every namespace, such as `*`, gives the mode of the pod.
	// Action: none.
	MatchedByAll Reason = "MatchedByAll"
	// MatchedByNoRule: no rule in `userNamespaces` matches the namespace of the pod, so the default mode applies.
	// Action: none.
	MatchedByNoRule Reason = "MatchedByNoRule"
	// Forced: the health event has `drainOverrides.force`, so every pod that must leave is evicted at once. Action:
	// none.
	Forced Reason = "Forced"
)

// Verdict is what has to become of a pod.
type Verdict struct {
	// Go reports whether the pod must leave before the node is repaired.
	Go bool
	// Mode is how, if it must.
	Mode Mode
}

// MustGo decides what becomes of one pod at a time.
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
	case policy.leavesAlone(pod):
		return Verdict{}, PerNodeController
	case past(stuckAt(pod, policy))(now):
		return Verdict{}, StuckTerminating
	case past(notReadyAt(pod, policy))(now):
		return Verdict{}, NotReadyTooLong
	}
	mode, why := policy.modeOfPod(pod)
	return Verdict{Go: true, Mode: mode}, why
}

// Stays reports whether MustGo leaves the pod on its node under every policy, as long as the
// pod is what it is.
func Stays(pod *corev1.Pod) bool { return isStatic(pod) || isDaemon(pod) || isFinished(pod) }

func past(at time.Time, ok bool) func(now time.Time) bool {
	return func(now time.Time) bool { return ok && !now.Before(at) }
}

// Due is a pod that still must go, with its mode.
type Due struct {
	Pod  *corev1.Pod
	Mode Mode
	Why  Reason
	// Since is when the oldest fault that asks for it was evaluated; deadlines count
	// from it.
	Since time.Time
}

// Pending lists the pods that still must go before the whole node is repaired,
// in the order given. Since is left out: it belongs to faults.
func Pending(pods []*corev1.Pod, policy Policy, now time.Time) []Due {
	due := Owing(pods, []Demand{{Extent: WholeNode(), Why: NodeRepair}}, policy, now)
	for i := range due {
		due[i].Since = time.Time{}
	}
	return due
}

// Owing lists the pods that still must go for any of the demands, in the order
// given: none means that the node is drained as far as they ask.
func Owing(pods []*corev1.Pod, demands []Demand, policy Policy, now time.Time) []Due {
	whole := slices.ContainsFunc(demands, func(d Demand) bool { return d.Extent.IsWholeNode() })
	var due []Due
	for _, pod := range pods {
		v, why := MustGo(pod, policy, now)
		if why == NotReadyTooLong && !whole {
			// The node stays up, and the GPU has to be free: a pod that does no
			// work any more goes at once.
			v = Verdict{Go: true, Mode: Immediate}
		}
		if !v.Go || ComesBack(pod, demands) {
			continue
		}
		x := Due{Pod: pod, Mode: v.Mode, Why: why}
		if x.applyDemands(demands) {
			due = append(due, x)
		}
	}
	return due
}

// ComesBack reports whether a drain has found that the pod's controller puts it back on the
// node. What may be a workload counts as one all the same.
func ComesBack(pod *corev1.Pod, demands []Demand) bool {
	return MayBePerNode(pod) && slices.ContainsFunc(demands, func(d Demand) bool { return slices.Contains(d.LeftAlone, Owner(pod)) })
}

// Lost lists the pods that hold up no drain of the whole node only because they do no
// work any more, or do not go: the repair, or a person, has to end them.
func Lost(pods []*corev1.Pod, policy Policy, now time.Time) []Due {
	var out []Due
	for _, pod := range pods {
		if _, why := MustGo(pod, policy, now); why == StuckTerminating || why == NotReadyTooLong {
			out = append(out, Due{Pod: pod, Why: why})
		}
	}
	return out
}

// applyDemands completes the pod's mode and time; false when no demand holds it.
func (due *Due) applyDemands(demands []Demand) bool {
	held := false
	for _, d := range demands {
		if in, _ := d.Extent.Includes(due.Pod); !in {
			continue
		}
		if !held || d.Since.Before(due.Since) {
			due.Since = d.Since
		}
		if d.Forced {
			due.Mode, due.Why = Immediate, Forced
		}
		held = true
	}
	return held
}

// LostAt is when a pod that is not ready, or taken away, will count as lost;
// ok is false when it is ready and stays, was never evaluated, or the policy waits
// for ever.
func LostAt(pod *corev1.Pod, policy Policy) (at time.Time, ok bool) {
	notReady, stays := notReadyAt(pod, policy)
	stuck, goes := stuckAt(pod, policy)
	if goes && (!stays || stuck.Before(notReady)) {
		return stuck, true
	}
	return notReady, stays
}

// stuckAt: the deletionTimestamp is the end of the pod's grace period.
func stuckAt(pod *corev1.Pod, policy Policy) (at time.Time, ok bool) {
	if policy.NotReady <= 0 || pod.DeletionTimestamp == nil {
		return time.Time{}, false
	}
	return pod.DeletionTimestamp.Add(policy.NotReady), true
}

func notReadyAt(pod *corev1.Pod, policy Policy) (at time.Time, ok bool) {
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
