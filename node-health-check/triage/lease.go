package triage

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	healthevent "github.com/nvidia/nvsentinel/api/healthevent/v1alpha1"
)

const (
	// classicTime is for how long a remediation without a timeout takes the lease.
	classicTime = 10 * time.Minute
	// leaseMargin is how much longer a lease lives than what it is taken for.
	leaseMargin = time.Minute
	// overdue is how many times its own time a remediation may take before its
	// lease is given up.
	overdue = 3
	// longest is the longest time of a step that a lease follows; sums of it do not overflow.
	longest = 365 * 24 * time.Hour
)

// leased is the time of a step that its lease follows.
func leased(timeout time.Duration) time.Duration {
	if timeout <= 0 {
		return classicTime
	}
	return min(timeout, longest)
}

// leaseTime is how long the lease of a remediation lives without renewal.
func leaseTime(timeout time.Duration) time.Duration { return leased(timeout) + leaseMargin }

// leases renews those of nodes with remediations and drops those of others. One whose
// remediation takes far too long is given up, so that somebody else may help the node; not
// under a pause, which leaves what is under way as it is.
func (r *round) leases() {
	holder := Holder(r.Check.Name)
	for _, node := range sortedKeys(r.Leases) {
		l := r.Leases[node]
		if l.Holder != holder || r.begun[node] || r.unread(node) || r.DryRun {
			continue
		}
		if len(r.mine[node]) == 0 {
			r.plan.act(Act{Do: Release, Node: node, NoRemediationLeft: true})
			continue
		}
		if r.handedOver(node) {
			r.plan.act(Act{Do: Release, Node: node})
			continue
		}
		current, earlier := r.times(node)
		end := l.Acquired.Add(overdue*current + earlier)
		if r.paused() { // a pause stops the steps, and so the time after which they are overdue
			end = r.now.Add(longest)
		}
		if r.now.After(end) {
			r.plan.act(Act{Do: Release, Node: node})
			r.plan.warn("", NoticeLease, fmt.Sprintf("the lease of node %s is released: its remediation has taken more than %s", node, overdue*current+earlier))
			continue
		}
		wanted := leaseTime(current)
		// At half of its life, so that a controller that is away for a while keeps it.
		due := l.Renewed.Add(wanted / 2).Sub(r.now)
		if due <= 0 || l.Duration != wanted {
			r.plan.act(Act{Do: Renew, Node: node, LeaseFor: wanted})
			due = wanted / 2
		}
		r.plan.again(min(due, end.Sub(r.now)) + settle)
	}
}

// handedOver reports whether the quarantine works on a node on this check's behalf. Its
// repair takes the lease too, and would wait for this check for ever. Others leave the
// node alone for as long as it is in quarantine.
func (r *round) handedOver(node string) bool {
	n := r.nodes[node]
	if n == nil || !InQuarantine(n) {
		return false
	}
	newest := slices.MaxFunc(r.mine[node], func(a, b *Remediation) int { return a.Created.Compare(b.Created) })
	return newest.Kind == healthevent.GroupVersion.WithKind(healthevent.Kind)
}

// times are the time of the step that is tried for a node, the last one if all were,
// and that of those before it.
func (r *round) times(node string) (current, earlier time.Duration) {
	tried := r.plan.nodes[node].Remediations
	current = classicTime
	for i := range r.Steps {
		current = leased(r.Steps[i].Timeout)
		if !ended(&r.Steps[i], tried) || i == len(r.Steps)-1 {
			return current, earlier
		}
		earlier += current
	}
	return current, earlier
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// oldAge is when a remediation is counted as an old one.
const oldAge = 48 * time.Hour

// age has remediations counted, once each, that are there for too long; under a pause, when
// it has ended.
func (r *round) age() {
	if r.paused() {
		return
	}
	for _, node := range sortedKeys(r.mine) {
		for _, one := range r.mine[node] {
			if one.AgeReported || one.Deleting || r.DryRun {
				continue
			}
			if left := one.Created.Add(oldAge).Sub(r.now); left >= 0 {
				r.plan.again(left + settle)
				continue
			}
			r.plan.act(Act{Do: Age, Node: node, Remediation: one})
		}
	}
}
