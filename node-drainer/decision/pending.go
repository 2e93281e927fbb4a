package decision

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/internal/eviction"
)

// phase is where a pod stands on its way out, the most telling first.
type phase int

const (
	toEvict phase = iota
	toDelete
	budgetBlocked
	errored
	stuck
	terminating
	awaitingDeadline
	awaitingCompletion
)

// pending is a pod that still must go.
type pending struct {
	pod   *corev1.Pod
	phase phase
	// next is when time alone changes the phase; zero is never.
	next time.Time
	// note is the budget that refuses, the error, or the deadline.
	note string
}

func (d drain) sort(due []eviction.Due) []pending {
	out := make([]pending, 0, len(due))
	for _, x := range due {
		out = append(out, d.judge(x))
	}
	slices.SortStableFunc(out, func(a, b pending) int {
		return cmp.Or(cmp.Compare(a.phase, b.phase), cmp.Compare(name(a.pod), name(b.pod)))
	})
	return out
}

func (d drain) judge(x eviction.Due) pending {
	switch x.Mode {
	case eviction.Immediate:
		return d.leaving(x.Pod, toEvict)
	case eviction.DeleteAfterTimeout:
		deadline := x.Deadline
		if !d.now.Before(deadline) {
			return d.leaving(x.Pod, toDelete)
		}
		if x.Pod.DeletionTimestamp == nil {
			return pending{pod: x.Pod, phase: awaitingDeadline, next: deadline, note: deadline.UTC().Format(time.RFC3339)}
		}
		p := d.onItsWay(x.Pod)
		p.next = earliest(deadline, p.next)
		return p
	case eviction.AllowCompletion:
	}
	if x.Pod.DeletionTimestamp != nil {
		return d.onItsWay(x.Pod)
	}
	return pending{pod: x.Pod, phase: awaitingCompletion}
}

// leaving is a pod that is taken away by us, with act.
func (d drain) leaving(pod *corev1.Pod, act phase) pending {
	if pod.DeletionTimestamp != nil && (act == toEvict || withoutGrace(pod)) {
		return d.onItsWay(pod)
	}
	a, tried := d.view.Attempts[pod.UID]
	if !tried {
		return pending{pod: pod, phase: act}
	}
	again := a.At.Add(d.backoff(a))
	if !d.now.Before(again) || d.now.Before(a.At) { // before: the clock was set back
		return pending{pod: pod, phase: act}
	}
	switch a.Result {
	case Refused:
		return pending{pod: pod, phase: budgetBlocked, next: again, note: a.Budget}
	case Errored:
		return pending{pod: pod, phase: errored, next: again, note: a.Message}
	case Accepted:
	}
	return pending{pod: pod, phase: terminating, next: again}
}

// minBackoff keeps a budget whose status is behind from being asked in a loop.
const minBackoff = time.Second

func (d drain) backoff(a Attempt) time.Duration {
	switch {
	case a.Result == Accepted:
		return d.policy.Settle
	case a.Allows:
		return minBackoff
	case a.After > 0:
		return max(min(a.After, d.policy.MaxBackoff), minBackoff)
	}
	wait := d.policy.Backoff
	for i := 1; i < a.Tries && wait < d.policy.MaxBackoff; i++ {
		wait *= 2
	}
	return max(min(wait, d.policy.MaxBackoff), minBackoff)
}

// onItsWay is a pod that is terminating. Its deletionTimestamp is the end of
// its grace period; what is there after it is left to the kubelet, and shown.
func (d drain) onItsWay(pod *corev1.Pod) pending {
	if end := pod.DeletionTimestamp.Time; d.now.Before(end.Add(stuckAfter)) {
		return pending{pod: pod, phase: terminating, next: end.Add(stuckAfter)}
	}
	return pending{pod: pod, phase: stuck}
}

// stuckAfter is how long after its grace period a pod counts as stuck.
const stuckAfter = 30 * time.Second

func withoutGrace(pod *corev1.Pod) bool {
	return pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}

func name(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// dominant is the reason to wait of the most telling pod.
func dominant(left []pending) Reason {
	switch left[0].phase {
	case budgetBlocked:
		return BudgetBlocked
	case errored:
		return EvictionErrored
	case awaitingDeadline:
		return AwaitingDeadline
	case awaitingCompletion:
		return AwaitingCompletion
	case toEvict, toDelete, stuck, terminating:
	}
	return PodsTerminating
}
