package triage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
)

// templateRetry is how soon a template that is not there is looked for again.
const templateRetry = 15 * time.Second

// round is one pass in the making.
type round struct {
	View
	now    time.Time
	plan   Plan
	before map[string]v1alpha1.UnhealthyNode // the status
	nodes  map[string]*corev1.Node           // selected, by name
	mine   map[string][]*Remediation         // own remediations by node
	all    map[string][]*Remediation         // and everybody's
	begun  map[string]bool                   // nodes for which one begins
}

// Examine decides one pass over a check. It decides the same for the same facts,
// whatever was decided before: what must not be done twice is in the facts.
func Examine(v View, now time.Time) Plan {
	r := &round{
		View: v, now: now,
		before: map[string]v1alpha1.UnhealthyNode{}, nodes: map[string]*corev1.Node{}, begun: map[string]bool{},
		mine: map[string][]*Remediation{}, all: map[string][]*Remediation{},
	}
	r.plan = Plan{
		Health: map[string]Finding{}, nodes: map[string]v1alpha1.UnhealthyNode{},
		noted: map[string]bool{}, blocked: map[Blocker]int{}, waiting: map[string]string{},
	}
	r.sort()
	r.strangers()
	r.findings()
	r.weather()
	for _, n := range r.Nodes {
		if r.plan.Health[n.Name].Health == Unhealthy {
			r.unhealthy(n)
		}
	}
	r.leases()
	r.age()
	if r.Problem != nil && r.Problem.Retry {
		r.plan.again(templateRetry)
	}
	return r.plan
}

// sort indexes what was observed.
func (r *round) sort() {
	r.Nodes = slices.SortedFunc(slices.Values(r.Nodes), func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, n := range r.Nodes {
		r.nodes[n.Name] = n
	}
	for _, u := range r.Check.Status.UnhealthyNodes {
		r.before[u.Name] = u
	}
	for i := range r.Remediations {
		one := &r.Remediations[i]
		r.all[one.Node] = append(r.all[one.Node], one)
		if one.Owned {
			r.mine[one.Node] = append(r.mine[one.Node], one)
		}
	}
}

// unread reports whether a node has a record of a remediation that cannot be read now.
func (r *round) unread(node string) bool {
	return slices.ContainsFunc(r.before[node].Remediations, func(t v1alpha1.Remediation) bool { return r.Unread[kindOf(t.Resource)] })
}

// strangers takes the remediations away of nodes that the selector does not match:
// they were deleted, or have other labels. One whose node is expected to go for good
// is left until it has succeeded.
func (r *round) strangers() {
	for node, objects := range r.mine {
		if r.nodes[node] != nil {
			continue
		}
		r.plan.nodes[node] = v1alpha1.UnhealthyNode{Name: node, Remediations: r.records(node)}
		for _, one := range objects {
			if !one.DeletionExpected || one.Succeeded == "True" {
				r.remove(node, one, "the node no longer exists or is no longer selected")
			}
		}
	}
	for node, entry := range r.before {
		if r.nodes[node] == nil && len(r.mine[node]) == 0 && r.unread(node) {
			r.plan.nodes[node] = entry
		}
	}
}

// remove takes a remediation away once.
func (r *round) remove(node string, one *Remediation, why string) {
	if one.Deleting {
		return
	}
	if r.DryRun {
		r.plan.notice("dry/remove/"+one.UID, NoticeSkipped, fmt.Sprintf("dry run: %s %s of node %s would be removed: %s", one.Kind.Kind, one.Name, node, why))
		return
	}
	r.plan.act(Act{Do: Remove, Node: node, Remediation: one})
	r.plan.notice("", NoticeRemoved, fmt.Sprintf("removing %s %s of node %s: %s", one.Kind.Kind, one.Name, node, why))
}

// findings classifies the nodes, counts them and releases those that recovered.
func (r *round) findings() {
	healthy := 0
	for _, n := range r.Nodes {
		found := Classify(n.Status.Conditions, r.Check.Spec.UnhealthyConditions, r.now)
		r.plan.Health[n.Name] = found
		switch found.Health {
		case Healthy:
			if r.recovered(n) && (r.Check.Spec.CountQuarantinedAsHealthy || !Quarantined(n)) {
				healthy++
			}
		case Soon:
			r.plan.again(found.In + settle)
			r.relapsed(n)
			if entry, listed := r.before[n.Name]; listed {
				entry.Remediations, entry.ConditionsHealthyTimestamp, entry.HealthyDelayed = r.records(n.Name), nil, nil
				r.plan.nodes[n.Name] = entry
			}
		case Unhealthy:
			r.relapsed(n)
		}
	}
	r.plan.Census = Census{Observed: len(r.Nodes), Healthy: healthy}
}

// relapsed begins the healthy delay again: the node has not stayed healthy.
func (r *round) relapsed(n *corev1.Node) {
	for _, one := range r.mine[n.Name] {
		if one.Delayed && !one.Deleting && !r.DryRun {
			r.plan.act(Act{Do: Undelay, Node: n.Name, Remediation: one})
		}
	}
}

// weather finds out whether remediations may begin.
func (r *round) weather() {
	spec, was := &r.Check.Spec, stormOf(r.Check)
	required, err := Required(spec, r.plan.Census.Observed)
	if err != nil && r.Problem == nil {
		r.Problem = &Problem{Reason: v1alpha1.ReasonSpecInvalid, Message: err.Error()}
	}
	r.plan.Census.Required = required
	r.plan.storm = was.EndIfRecovered(r.plan.Census, spec.StormRecoveryThreshold)
	r.plan.Blocker = GateOf(r.View, r.plan.Census, r.plan.storm)
	if was.Active && !r.plan.storm.Active && spec.StormRecoveryThreshold != nil {
		r.plan.notice("", NoticeStormOver, fmt.Sprintf("storm recovery ended: %d nodes are unhealthy, the threshold is %d", r.plan.Census.Unhealthy(), *spec.StormRecoveryThreshold))
	}
}

// stormOf is the storm that the status reports.
func stormOf(c *v1alpha1.NodeHealthCheck) Storm {
	if c.Status.StormRecoveryActive == nil || !*c.Status.StormRecoveryActive {
		return Storm{}
	}
	s := Storm{Active: true}
	if c.Status.StormRecoveryStartTime != nil {
		s.Since = c.Status.StormRecoveryStartTime.Time
	}
	return s
}

// unhealthy lists a node and takes its remediation a step on.
func (r *round) unhealthy(n *corev1.Node) {
	found, tried := r.plan.Health[n.Name], r.records(n.Name)
	if len(tried) == 0 {
		r.plan.notice("detected/"+n.Name, NoticeDetected, fmt.Sprintf("node %s is unhealthy: %s is %s", n.Name, found.Type, found.Status))
	}
	if value, there := n.Labels[v1alpha1.ExcludeLabel]; there && value == "" {
		r.plan.warn("label/"+n.Name, NoticeInvalidLabel, fmt.Sprintf("node %s has the label %s without a value, which has no effect: set it to true to exclude the node", n.Name, v1alpha1.ExcludeLabel))
	}
	e := Escalate(r.Steps, tried, r.all[n.Name], r.now)
	switch e.Turn {
	case TurnBegin:
		r.begin(n, e.Step)
	case TurnOver:
		if r.paused() { // what is under way is not touched, and goes on as it is when the pause ends
			r.reportBlocked(n, BlockerPaused, string(BlockerPaused))
			break
		}
		r.over(n, e, tried)
	case TurnNone:
		if r.Problem == nil { // without a problem there are steps, and all were tried
			r.plan.warn("none/"+n.Name, NoticeNoneLeft, "node "+n.Name+" is still unhealthy and has no remaining remediation")
		}
	case TurnRun:
		r.plan.again(e.In)
	case TurnForeign:
		r.foreign(n, e.Remediation)
	case TurnRemoving: // a watch reports its end
	}
	r.plan.nodes[n.Name] = v1alpha1.UnhealthyNode{Name: n.Name, Remediations: tried, Waiting: r.plan.waiting[n.Name]}
}

// begin has a remediation made, unless something holds it back.
func (r *round) begin(n *corev1.Node, step *Step) {
	if hold := r.blocker(n); hold != Free {
		why := string(hold)
		if hold == BlockerUnreadable {
			why += ": " + cut(r.ControlPlaneUnread)
		}
		r.reportBlocked(n, hold, why)
		return
	}
	r.begun[n.Name] = true
	if IsControlPlane(n) {
		r.ControlPlane = append(slices.Clone(r.ControlPlane), n.Name)
	}
	lease := leaseTime(step.Timeout)
	r.plan.again(lease/2 + settle)
	r.plan.act(Act{Do: Begin, Node: n.Name, Of: n, Step: step, LeaseFor: lease})
}

// blocker is why no remediation of a node may begin.
func (r *round) blocker(n *corev1.Node) Blocker {
	if r.plan.Blocker != Free {
		return r.plan.Blocker
	}
	return Gate(r.View, n, r.ControlPlane, r.now)
}

// foreign waits for the end of somebody else's object that is where the node's
// remediation would be. The node is the check's from then on, whatever made the object.
func (r *round) foreign(n *corev1.Node, one *Remediation) {
	// The creator of the object has the node's lease too.
	if hold := r.blocker(n); hold != Free && hold != BlockerDryRun && hold != BlockerLease {
		r.reportBlocked(n, hold, string(hold))
		return
	}
	r.reportBlocked(n, BlockerForeign, fmt.Sprintf("%s %s was not created by this check, waiting for its deletion", one.Kind.Kind, one.Name))
}

// reportBlocked reports why nothing begins: once for all nodes if it is the check's reason.
func (r *round) reportBlocked(n *corev1.Node, hold Blocker, why string) {
	c := r.plan.Census
	r.plan.blocked[hold]++
	r.plan.again(hold.Retry())
	if !hold.CheckWide() {
		r.plan.waiting[n.Name] = why
	}
	switch hold {
	case BlockerDisabled: // the condition shows it
	case BlockerPaused:
		r.plan.notice("paused", NoticeSkipped, "no remediation starts, because the check is paused: "+strings.Join(r.Check.Spec.PauseRequests, ", "))
	case BlockerBudget:
		r.plan.warn("budget", NoticeSkipped, fmt.Sprintf("no remediation starts: %d nodes are healthy, %d are required", c.Healthy, c.Required))
	case BlockerStorm:
		r.plan.warn("storm", NoticeSkipped, fmt.Sprintf("no remediation starts: storm recovery is active until at most %d nodes are unhealthy, currently %d", *r.Check.Spec.StormRecoveryThreshold, c.Unhealthy()))
	case BlockerEmergencyStop:
		r.plan.warn("pause", NoticeSkipped, "no remediation starts: "+r.Pause)
	case BlockerDryRun:
		r.plan.notice("dry/"+n.Name, NoticeSkipped, "dry run: a remediation of node "+n.Name+" would start")
	default:
		r.plan.warn("held/"+n.Name, NoticeSkipped, fmt.Sprintf("no remediation of node %s starts: %s", n.Name, why))
	}
}

// paused reports whether people asked the check to begin nothing and to leave what is under
// way alone.
func (r *round) paused() bool { return len(r.Check.Spec.PauseRequests) > 0 }

// over gives a remediation up: its record shows when, and the next pass goes on.
func (r *round) over(n *corev1.Node, e Escalation, tried []v1alpha1.Remediation) {
	r.plan.again(settle)
	if r.DryRun {
		return
	}
	if e.NotifyRemediator {
		r.plan.act(Act{Do: NotifyRemediator, Node: n.Name, Remediation: e.Remediation})
	}
	for i := range tried {
		if tried[i].Resource.UID == uid(e.Remediation) {
			tried[i].TimedOut = &metav1.Time{Time: r.now}
		}
	}
}
