package triage

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
)

// recovered takes the remediations of a healthy node away. It reports whether none is
// left, which makes the node count as healthy.
func (r *round) recovered(n *corev1.Node) bool {
	entry, listed := r.before[n.Name]
	if r.unread(n.Name) {
		r.plan.nodes[n.Name] = entry
		return false
	}
	mine := r.mine[n.Name]
	if len(mine) == 0 {
		r.released(n, entry)
		return true
	}
	if !listed || entry.ConditionsHealthyTimestamp == nil {
		entry.ConditionsHealthyTimestamp = &metav1.Time{Time: r.now}
	}
	entry.Name, entry.Remediations, entry.HealthyDelayed = n.Name, r.records(n.Name), nil
	for _, one := range mine {
		if r.delayed(n, one) {
			entry.HealthyDelayed = new(true)
			continue
		}
		r.remove(n.Name, one, "the node is healthy")
	}
	r.plan.nodes[n.Name] = entry
	return false
}

// released tidies up after a node whose remediations are gone.
func (r *round) released(n *corev1.Node, entry v1alpha1.UnhealthyNode) {
	if _, confirmed := n.Annotations[v1alpha1.ConfirmedHealthyAnnotation]; confirmed && !r.DryRun {
		r.plan.act(Act{Do: Confirm, Node: n.Name, Of: n})
	}
	for _, t := range entry.Remediations {
		r.plan.Ended = append(r.plan.Ended, Ended{Node: n.Name, Kind: t.Resource.Kind, Namespace: t.Resource.Namespace, Started: t.Started.Time})
	}
}

// delayed reports whether the healthy delay keeps a remediation of a healthy node. The
// delay begins when the node is first seen healthy, and again after each relapse.
func (r *round) delayed(n *corev1.Node, one *Remediation) bool {
	var delay time.Duration
	if d := r.Check.Spec.HealthyDelay; d != nil {
		delay = d.Duration
	}
	if _, confirmed := n.Annotations[v1alpha1.ConfirmedHealthyAnnotation]; confirmed || delay == 0 || one.Deleting {
		return false
	}
	if delay < 0 {
		return true
	}
	if !one.Delayed {
		if !r.DryRun {
			r.plan.act(Act{Do: Delay, Node: n.Name, Remediation: one})
		}
		r.plan.again(delay + settle)
		return true
	}
	left := one.HealthySince.Add(delay).Sub(r.now)
	if one.HealthySince.IsZero() || left <= 0 {
		return false
	}
	r.plan.again(left + settle)
	return true
}
