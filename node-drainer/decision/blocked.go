package decision

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/eviction"
)

// reportErrors is how many tries in a row fail before somebody should know: one failure
// is often over a moment later.
const reportErrors = 3

// BlockedReasons lists every reason of a Blocked.
func BlockedReasons() []Reason {
	return []Reason{BudgetBlocked, SeveralBudgets, EvictionErrored, PodsReturn, NeverCompletes, AwaitingCompletion}
}

// blocked lists why pods do not leave, as far as somebody should know, in the order of
// left.
func (d drain) blocked(left []pending) []Blocked {
	var out []Blocked
	for _, p := range left {
		why, by, ok := d.reported(p)
		if !ok {
			continue
		}
		i := slices.IndexFunc(out, func(b Blocked) bool { return b.Why == why })
		if i < 0 {
			i, out = len(out), append(out, Blocked{Why: why})
		}
		b := &out[i]
		for _, name := range by {
			if !slices.Contains(b.By, name) {
				b.By = append(b.By, name)
			}
		}
		b.Overdue = b.Overdue || !p.overdue.IsZero() && !d.now.Before(p.overdue)
	}
	for i := range out {
		slices.Sort(out[i].By)
	}
	return out
}

// reported is what somebody should know of a pod; false while its wait is an ordinary one.
func (d drain) reported(p pending) (why Reason, by []string, ok bool) {
	if d.returns(p.pod) >= d.policy.Returns {
		return PodsReturn, []string{eviction.OwnerKindOf(p.pod)}, true
	}
	switch p.phase {
	case budgetBlocked:
		if len(p.budgets) > 1 {
			return SeveralBudgets, p.budgets, true
		}
		return BudgetBlocked, p.budgets, true
	case errored:
		return EvictionErrored, nil, p.tries >= reportErrors
	case neverCompletes:
		return NeverCompletes, []string{p.note}, true
	case awaitingCompletion:
		return AwaitingCompletion, nil, !d.now.Before(p.overdue)
	case toEvict, toDelete, returned, stuck, terminating, awaitingDeadline:
	}
	return "", nil, false
}

// leaveAlone records the controllers that keep a pod on the node whatever is evicted. A
// controller is taken for one only if all of this holds: its pod was evicted and put
// back several times; the Node was cordoned meanwhile, so that nothing is bound to it by
// chance; it has one pod there; and that pod is none that may be a workload.
func (d drain) leaveAlone(due []eviction.Due, carrier record.Record) (Step, bool) {
	var owners, names []string
	for _, x := range due {
		if d.recreated(x, due) {
			owners = append(owners, eviction.Owner(x.Pod))
			names = append(names, ofItsKind(x.Pod))
		}
	}
	if len(owners) == 0 {
		return Step{}, false
	}
	s := Step{Kind: LeaveAlone, Why: PodsReturn, Session: d.view.Node.Session, Left: len(due)}
	s.Blocked = []Blocked{{Why: PodsReturn, By: names}}
	before := carrier.Status.UserPodsEvictionStatus
	message := before.Message
	if before.Status.Final() {
		message += leftAlone(names)
	}
	s.update(carrier, before.Status, message)
	if before.LeftAlone != "" {
		owners = append([]string{before.LeftAlone}, owners...)
	}
	s.Updates[0].Status.LeftAlone = strings.Join(owners, ",")
	return s, true
}

func ofItsKind(pod *corev1.Pod) string { return name(pod) + " (" + eviction.OwnerKindOf(pod) + ")" }

// comeBack names the pods that are left alone since they are put back.
func (d drain) comeBack() []string {
	demands := d.demands()
	var out []string
	for _, pod := range d.view.Pods {
		if eviction.ComesBack(pod, demands) {
			out = append(out, ofItsKind(pod))
		}
	}
	return out
}

func (d drain) recreated(x eviction.Due, due []eviction.Due) bool {
	owner := eviction.Owner(x.Pod)
	if x.Mode == eviction.AllowCompletion || !d.view.Node.Unschedulable ||
		x.Pod.DeletionTimestamp != nil || !eviction.MayBePerNode(x.Pod) {
		return false
	}
	siblings := 0
	for _, y := range due {
		if eviction.Owner(y.Pod) == owner {
			siblings++
		}
	}
	return siblings == 1 && d.returns(x.Pod) >= d.policy.Returns
}

// lost names the pods that the drain's end leaves to the repair.
func (d drain) lost() []string {
	if !eviction.Union(d.demands()).IsWholeNode() {
		return nil
	}
	var out []string
	for _, x := range eviction.Lost(d.view.Pods, d.policy.Eviction, d.now) {
		out = append(out, name(x.Pod)+" ("+state(x.Pod)+")")
	}
	return out
}

func state(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return "not terminated after its grace period"
	}
	return "not ready"
}

func leftToRepair(names []string) string { return listed(", left to the remediation: ", names) }

func leftAlone(names []string) string {
	return listed(", ignored because their controllers recreate them: ", names)
}

func listed(title string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return title + strings.Join(names[:min(len(names), maxShown)], ", ") + more(len(names))
}
