package decision

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/internal/eviction"
)

// phase is where a pod stands on its way out, the most informative first.
type phase int

const (
	toEvict phase = iota
	toDelete
	budgetBlocked
	errored
	returned
	stuck
	terminating
	awaitingDeadline
	neverCompletes
	awaitingCompletion
)

// pending is a pod that still must go.
type pending struct {
	pod   *corev1.Pod
	phase phase
	// next is when time alone changes the phase; zero is never.
	next time.Time
	// note is the error, the deadline, or the kind of the owner.
	note string
	// budgets are those that refuse.
	budgets []string
	// tries counts tries in a row that were not accepted.
	tries int
	// overdue is when somebody should act; zero is never.
	overdue time.Time
}

func (d drain) sort(due []eviction.Due) []pending {
	out := make([]pending, 0, len(due))
	for _, x := range due {
		p := d.classify(x)
		p.overdue = d.overdue(x, p.phase)
		out = append(out, p)
	}
	slices.SortStableFunc(out, func(a, b pending) int {
		return cmp.Or(cmp.Compare(a.phase, b.phase), cmp.Compare(name(a.pod), name(b.pod)))
	})
	return out
}

func (d drain) classify(x eviction.Due) pending {
	switch x.Mode {
	case eviction.Immediate:
		return d.leaving(x.Pod, toEvict)
	case eviction.DeleteAfterTimeout:
		deadline := x.Since.Add(d.policy.Eviction.DeleteAfter)
		if !d.now.Before(deadline) {
			return d.leaving(x.Pod, toDelete)
		}
		if x.Pod.DeletionTimestamp == nil {
			return pending{pod: x.Pod, phase: awaitingDeadline, next: deadline, note: deadline.UTC().Format(time.RFC3339)}
		}
		p := d.terminating(x.Pod)
		p.next = earliest(deadline, p.next)
		return p
	case eviction.AllowCompletion, eviction.LeaveAlone: // no pod of LeaveAlone is due
	}
	if x.Pod.DeletionTimestamp != nil {
		return d.terminating(x.Pod)
	}
	if eviction.NeverCompletes(x.Pod) {
		return pending{pod: x.Pod, phase: neverCompletes, note: eviction.OwnerKindOf(x.Pod)}
	}
	return pending{pod: x.Pod, phase: awaitingCompletion}
}

// overdue is when a pod's phase asks for somebody; zero is never. Pods that terminate
// stop to hold the drain by themselves.
func (d drain) overdue(x eviction.Due, at phase) time.Time {
	if d.returns(x.Pod) >= d.policy.Returns {
		return d.now
	}
	switch at {
	case budgetBlocked, errored:
		return latest(x.Since, d.view.MovedAt).Add(d.policy.BlockedFor)
	case neverCompletes:
		return d.now
	case awaitingCompletion:
		return x.Since.Add(d.policy.Overdue)
	case toEvict, toDelete, returned, stuck, terminating, awaitingDeadline:
	}
	return time.Time{}
}

// returns is how often the pod's controller put one back.
func (d drain) returns(pod *corev1.Pod) int { return d.view.Returns[eviction.Owner(pod)] }

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// leaving is a pod that is taken away by us, with act.
func (d drain) leaving(pod *corev1.Pod, act phase) pending {
	if pod.DeletionTimestamp != nil && (act == toEvict || withoutGrace(pod)) {
		return d.terminating(pod)
	}
	a, tried := d.view.Attempts[pod.UID]
	if !tried {
		return d.untried(pod, act)
	}
	again := a.At.Add(d.backoff(a))
	if !d.now.Before(again) || d.now.Before(a.At) { // before: the clock was set back
		return pending{pod: pod, phase: act}
	}
	switch a.Result {
	case Refused:
		return pending{pod: pod, phase: budgetBlocked, next: again, budgets: a.Budgets, tries: a.Tries}
	case Errored:
		return pending{pod: pod, phase: errored, next: again, note: a.Message, tries: a.Tries}
	case Accepted:
	}
	return pending{pod: pod, phase: terminating, next: again}
}

// untried is a pod that no try was made on. One whose controller put it back is evicted
// after a pause that grows with every time.
func (d drain) untried(pod *corev1.Pod, act phase) pending {
	returns := d.returns(pod)
	if returns == 0 {
		return pending{pod: pod, phase: act}
	}
	created := pod.CreationTimestamp.Time
	again := created.Add(doubled(d.policy.Backoff, returns, d.policy.MaxBackoff))
	if !d.now.Before(again) || d.now.Before(created) { // before: the clock was set back
		return pending{pod: pod, phase: act}
	}
	return pending{pod: pod, phase: returned, next: again, note: eviction.OwnerKindOf(pod)}
}

// minBackoff keeps a budget whose status is behind from being asked in a loop.
const minBackoff = time.Second

func (d drain) backoff(a Attempt) time.Duration {
	switch {
	case a.Result == Accepted:
		return d.policy.Settle
	case a.Allows: // its status may be behind, or others take what it allows: ever more slowly
		return max(doubled(minBackoff, a.Tries, d.policy.Backoff), minBackoff)
	case a.After > 0:
		return max(min(a.After, d.policy.MaxBackoff), minBackoff)
	}
	return max(doubled(d.policy.Backoff, a.Tries, d.policy.MaxBackoff), minBackoff)
}

// doubled is first after one try, twice that after two, and so on up to most.
func doubled(first time.Duration, tries int, most time.Duration) time.Duration {
	wait := first
	for i := 1; i < tries && wait < most; i++ {
		wait *= 2
	}
	return min(wait, most)
}

// terminating is a pod that is terminating. Its deletionTimestamp is the end of
// its grace period; what is there after it is left to the kubelet, and shown.
func (d drain) terminating(pod *corev1.Pod) pending {
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

// dominant is the reason to wait of the most informative pod.
func dominant(left []pending) Reason {
	switch left[0].phase {
	case budgetBlocked:
		return BudgetBlocked
	case errored:
		return EvictionErrored
	case returned:
		return PodsReturn
	case awaitingDeadline:
		return AwaitingDeadline
	case neverCompletes, awaitingCompletion:
		return AwaitingCompletion
	case toEvict, toDelete, stuck, terminating:
	}
	return PodsTerminating
}
