package triage

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
)

// Outcome is what became of one act of a plan.
type Outcome struct {
	Act Act
	// Err is why it was not done, and CutShort that the process, or its leadership, ended.
	Err      error
	CutShort bool
	// Skipped is why Begin was not done although nothing failed: the lease or the
	// name was taken meanwhile, or the object is refused. Hold is what it has in common
	// with other nodes'; without one it is Skipped itself.
	Skipped string
	Blocker Blocker
	// Made is the remediation of Begin; Found that it was there already.
	Made  *Remediation
	Found bool
}

// Close makes the status after the acts of a plan were done, and the notices of what
// was done. A storm begins only when all that the budget allowed has begun: what an
// API server refused must not wait for a storm's end.
func (p *Plan) Close(v View, outcomes []Outcome, now time.Time) (v1alpha1.NodeHealthCheckStatus, []Notice) {
	c := &closing{Plan: p, v: v, failing: failures(outcomes)}
	c.warnFailed()
	failed := false
	for _, o := range outcomes {
		failed = failed || o.Act.Do == Begin && o.Err != nil
		c.settle(o)
	}
	threshold := v.Check.Spec.StormRecoveryThreshold
	storm := p.storm
	if !failed && p.Blocker != BlockerDisabled {
		storm = p.storm.Rise(p.Census, threshold, now)
	}
	if storm.Active && !p.storm.Active {
		c.warn("", NoticeStorm, fmt.Sprintf("storm recovery started: %d nodes are healthy, %d are required. No remediation starts until at most %d nodes are unhealthy, currently %d",
			p.Census.Healthy, p.Census.Required, *threshold, p.Census.Unhealthy()))
	}
	return c.status(storm, now), c.Notices
}

type closing struct {
	*Plan
	v       View
	failing map[Verb]*failure
}

// settle writes one outcome into the records.
func (c *closing) settle(o Outcome) {
	entry := c.nodes[o.Act.Node]
	switch {
	case o.Act.Do == NotifyRemediator && o.Err != nil:
		// The remediator was not notified: the record must not show a timeout.
		for i := range entry.Remediations {
			if entry.Remediations[i].Resource.UID == uid(o.Act.Remediation) {
				entry.Remediations[i].TimedOut = nil
			}
		}
	case o.Act.Do == Begin && o.Made != nil:
		entry.Remediations = append(entry.Remediations, o.Made.Record())
		if !o.Found {
			c.notice("", NoticeCreated, fmt.Sprintf("%s %s was created for node %s", o.Made.Kind.Kind, o.Made.Name, o.Act.Node))
		}
	case o.Act.Do == Begin && o.Skipped != "":
		c.skipped(o)
		entry.Waiting = cut(o.Skipped)
	case o.Act.Do == Begin && o.Err != nil && !o.CutShort:
		entry.Waiting = cut("starting its remediation failed, retrying: " + o.Err.Error())
	default:
		return
	}
	c.nodes[o.Act.Node] = entry
}

// skipped counts and reports a node for which nothing began. Objects that are refused, by a
// quota for instance, are reported once for all nodes; each node's entry has its own words.
func (c *closing) skipped(o Outcome) {
	hold, key := o.Blocker, "held/"+o.Act.Node
	if hold == "" {
		hold = Blocker(o.Skipped)
	}
	if hold == BlockerRefused {
		key = "refused"
	}
	c.blocked[hold]++
	c.warn(key, NoticeSkipped, fmt.Sprintf("no remediation of node %s starts: %s", o.Act.Node, cut(o.Skipped)))
	c.again(BlockerLease.Retry())
}

// status is the whole of it; what did not change keeps its times.
func (c *closing) status(storm Storm, now time.Time) v1alpha1.NodeHealthCheckStatus {
	old := c.v.Check.Status
	s := v1alpha1.NodeHealthCheckStatus{
		ObservedNodes: new(int32(c.Census.Observed)), HealthyNodes: new(int32(c.Census.Healthy)),
		LastUpdateTime: old.LastUpdateTime, Conditions: slices.Clone(old.Conditions),
	}
	for _, name := range sortedKeys(c.nodes) {
		s.UnhealthyNodes = append(s.UnhealthyNodes, c.nodes[name])
	}
	if c.v.Check.Spec.StormRecoveryThreshold != nil {
		s.StormRecoveryActive = new(storm.Active)
		if storm.Active {
			s.StormRecoveryStartTime = &metav1.Time{Time: storm.Since}
		}
	}
	c.disabled(&s, now)
	c.explain(&s)
	if !same(old, s) {
		s.LastUpdateTime = &metav1.Time{Time: now}
	}
	return s
}

// disabled sets the condition and reports its change.
func (c *closing) disabled(s *v1alpha1.NodeHealthCheckStatus, now time.Time) {
	was := meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionDisabled)
	condition := metav1.Condition{
		Type: v1alpha1.ConditionDisabled, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonEnabled,
		Message: "the check is operational", LastTransitionTime: metav1.Time{Time: now}, ObservedGeneration: c.v.Check.Generation,
	}
	problem := c.problem()
	if problem != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, problem.Reason, problem.Message
		c.warn("disabled/"+problem.Reason+problem.Message, NoticeDisabled, problem.Reason+": "+problem.Message)
	} else if was {
		c.notice("", NoticeEnabled, "the check is operational again")
	}
	if failed := c.failed(); problem == nil && len(failed) > 0 {
		condition.Message = "the check is operational, but some actions fail: " + strings.Join(failed, ", ")
	}
	meta.SetStatusCondition(&s.Conditions, condition)
}

func (c *closing) problem() *Problem {
	if c.v.Problem != nil {
		return c.v.Problem
	}
	if _, err := Required(&c.v.Check.Spec, c.Census.Observed); err != nil {
		return &Problem{Reason: v1alpha1.ReasonSpecInvalid, Message: err.Error()}
	}
	return nil
}

// explain sets phase and reason.
func (c *closing) explain(s *v1alpha1.NodeHealthCheckStatus) {
	remediated := 0
	for _, u := range s.UnhealthyNodes {
		if len(u.Remediations) > 0 {
			remediated++
		}
	}
	disabled := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionDisabled)
	switch {
	case disabled != nil && disabled.Status == metav1.ConditionTrue:
		s.Phase = v1alpha1.PhaseDisabled
		s.Reason = fmt.Sprintf("The check is disabled: %s: %s", disabled.Reason, disabled.Message)
	case len(c.v.Check.Spec.PauseRequests) > 0:
		s.Phase = v1alpha1.PhasePaused
		s.Reason = "The check is paused: " + strings.Join(c.v.Check.Spec.PauseRequests, ",")
	case remediated > 0:
		s.Phase = v1alpha1.PhaseRemediating
		s.Reason = fmt.Sprintf("Remediating: %d unhealthy nodes, %d of them with remediations", len(s.UnhealthyNodes), remediated)
	default:
		s.Phase = v1alpha1.PhaseEnabled
		s.Reason = fmt.Sprintf("The check is enabled, no remediation is in progress, %d unhealthy nodes", len(s.UnhealthyNodes))
	}
	for _, hold := range sortedKeys(c.blocked) {
		switch {
		case hold == BlockerDisabled || hold == BlockerPaused:
		case hold.CheckWide():
			s.Reason += fmt.Sprintf(", %d pending: %s (%d healthy, %d required)", c.blocked[hold], hold, c.Census.Healthy, c.Census.Required)
		default:
			s.Reason += fmt.Sprintf(", %d pending: %s", c.blocked[hold], hold)
		}
	}
	for _, sentence := range c.failed() {
		s.Reason += ", " + sentence
	}
	if c.v.DryRun {
		s.Reason += ", dry run: nothing is started or removed"
	}
	if Ineffective(c.Census, c.v.Check.Spec.StormRecoveryThreshold) {
		s.Reason += fmt.Sprintf(", stormRecoveryThreshold %d has no effect: must be less than %d, the number of nodes that can be unhealthy",
			*c.v.Check.Spec.StormRecoveryThreshold, max(c.Census.Observed-c.Census.Required, 0))
	}
}

// same reports whether two statuses are equal, apart from their own time. Times are stored in
// seconds.
func same(a, b v1alpha1.NodeHealthCheckStatus) bool {
	a.LastUpdateTime, b.LastUpdateTime = nil, nil
	return equality.Semantic.DeepEqual(a, b)
}

// Changed reports whether a status is worth writing. A stored one in which no node waits for
// a reason of its own may be of a definition of the kind that drops the field: then the
// field alone is not worth it. Where a first such reason appears, the status' reason
// changes too.
func Changed(stored, wanted v1alpha1.NodeHealthCheckStatus) bool {
	if !slices.ContainsFunc(stored.UnhealthyNodes, func(u v1alpha1.UnhealthyNode) bool { return u.Waiting != "" }) {
		wanted.UnhealthyNodes = slices.Clone(wanted.UnhealthyNodes)
		for i := range wanted.UnhealthyNodes {
			wanted.UnhealthyNodes[i].Waiting = ""
		}
	}
	return !same(stored, wanted)
}

// shown is how many bytes of somebody else's words a status or an Event repeats.
const shown = 300

// cut bounds somebody else's words.
func cut(text string) string {
	if len(text) <= shown {
		return text
	}
	return strings.ToValidUTF8(text[:shown], "") + " ..."
}
