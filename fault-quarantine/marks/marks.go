// Package marks computes what a Node must look like from its open faults: the
// cordon, taints, labels and annotations of the session as a whole, and their
// removal. It is pure; foreign cordons, taints, labels and annotations stay.
package marks

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// Desired is what the open faults of a node ask for together. A zero Desired
// asks for a Node without marks.
type Desired struct {
	Session string
	Effects record.Effects
	// RuleSets names the cordoning sets, for the label cordon-reason.
	RuleSets []string
	// Faults are the events of the open records, oldest first.
	Faults []record.Event
	// Unknown are the ids of faults of which the store does not know whether they are
	// over; see Keep.
	Unknown []string
	// Lost are the faults among them that only the Node lists, as it does.
	Lost []json.RawMessage
	// Ended are the ids of the faults that this evaluation ended for a person's
	// release: the Node need not list the newest of them yet.
	Ended []string
}

// Of computes the desired marks from the open records of a node, from their
// stored verdicts alone.
func Of(open []record.Record) Desired {
	var d Desired
	for _, r := range open {
		if d.Session == "" {
			d.Session = r.Status.Session
		}
		v := r.Status.QuarantineVerdict
		d.Effects.Cordon = d.Effects.Cordon || v.Effects.Cordon
		for _, t := range v.Effects.Taints {
			if !slices.Contains(d.Effects.Taints, t) {
				d.Effects.Taints = append(d.Effects.Taints, t)
			}
		}
		for _, l := range v.Effects.Labels {
			if !slices.ContainsFunc(d.Effects.Labels, func(x record.Label) bool { return x.Key == l.Key }) {
				d.Effects.Labels = append(d.Effects.Labels, l)
			}
		}
		for _, name := range v.RuleSets {
			if v.Effects.Cordon && !slices.Contains(d.RuleSets, name) {
				d.RuleSets = append(d.RuleSets, name)
			}
		}
		d.Faults = append(d.Faults, r.Event)
	}
	return d
}

// Without leaves faults out of the list: their events are not known whole.
func (d Desired) Without(ids map[string]bool) Desired {
	d.Faults = slices.DeleteFunc(slices.Clone(d.Faults), func(e record.Event) bool { return ids[e.ID] })
	return d
}

// Mutator applies desired marks to Nodes.
type Mutator struct {
	// LabelPrefix is put before cordon-by and its like.
	LabelPrefix string
	// AnyoneReleases: anyone who lifts a mark of a session releases the Node.
	AnyoneReleases bool
}

// Apply changes node so that it bears exactly the desired marks of the project; it is
// idempotent. A mark that somebody lifted without releasing the Node is restored,
// at most once within RestoreEvery. While a repair object claims the Node, a release
// keeps cordon, taints and labels (and the annotations that claim them) and ends the
// session alone.
func (mt Mutator) Apply(node *corev1.Node, d Desired, now time.Time) {
	m := nodemark.Read(node)
	if d.Session == "" {
		mt.release(node, m, d.Ended, now)
		return
	}
	if m.Session != d.Session {
		nodemark.SetState(node, nodemark.Quarantined)
		drop(node, nodemark.QuarantinedNodeUncordonedManually, nodemark.QuarantinedNodeUntaintedManually, nodemark.ReleasedAnnotation)
		nodemark.EndRelease(node)
	}
	restoration := restorationOf(m, d, now)
	nodemark.Annotate(node, nodemark.SessionAnnotation, d.Session)
	nodemark.ListFaults(node, d.Lost, d.Faults)
	nodemark.Annotate(node, nodemark.UnknownAnnotation, strings.Join(d.Unknown[:min(len(d.Unknown), maxUnknown)], ","))
	mt.noteAnyone(node)
	if restoration != Later || !d.Effects.Cordon || m.Lifted != nodemark.ByUncordon {
		mt.cordon(node, m.Applied, d, now)
	}
	applyTaints(node, m.Applied.Taints, d.Effects.Taints, restoration != Later && (m.Session != d.Session || m.Released == nodemark.NotReleased))
	applyLabels(node, m.Applied.Labels, d.Effects.Labels)
	if restoration != Intact {
		recordRestoration(node, m, restoration, now)
	}
}

// restorationOf is what becomes of a lifted mark: what a session before lifted or restored is
// nothing to the one that is desired.
func restorationOf(m nodemark.Marks, d Desired, now time.Time) Restoration {
	if m.Session != d.Session {
		return Intact
	}
	restoration, _ := EvaluateRestoration(m, now)
	return restoration
}

func (mt Mutator) noteAnyone(node *corev1.Node) {
	value := ""
	if mt.AnyoneReleases {
		value = nodemark.True
	}
	nodemark.Annotate(node, nodemark.AnyoneReleasesAnnotation, value)
}

// cordon makes the node unschedulable. A cordon that was there before is its
// owner's; when the owner lifts it, the node still has faults and ours begins.
func (mt Mutator) cordon(node *corev1.Node, ours nodemark.Applied, d Desired, now time.Time) {
	keys := nodemark.CordonLabelsWith(mt.LabelPrefix)
	switch {
	case !d.Effects.Cordon:
		mt.uncordon(node, ours, now)
	case !ours.Cordon && node.Spec.Unschedulable:
		nodemark.Annotate(node, nodemark.QuarantineHealthEventCordonPreExisting, nodemark.True)
	default:
		node.Spec.Unschedulable = true
		drop(node, nodemark.QuarantineHealthEventCordonPreExisting)
		nodemark.Annotate(node, nodemark.QuarantineHealthEventIsCordoned, nodemark.True)
		mt.forget(node)
		nodemark.Label(node, keys.CordonBy, us)
		if len(d.RuleSets) > 0 || len(d.Unknown) == 0 {
			nodemark.Label(node, keys.CordonReason, labelValue(strings.Join(d.RuleSets, "-"), 63))
		}
		if node.Labels[keys.CordonTimestamp] == "" {
			nodemark.Label(node, keys.CordonTimestamp, timestamp(now))
		}
		for _, k := range []string{keys.UncordonBy, keys.UncordonReason, keys.UncordonTimestamp} {
			delete(node.Labels, k)
		}
	}
}

// uncordon takes back a cordon of the project and records it in labels, unless a person
// was faster.
func (mt Mutator) uncordon(node *corev1.Node, ours nodemark.Applied, now time.Time) {
	keys := nodemark.CordonLabelsWith(mt.LabelPrefix)
	drop(node, nodemark.QuarantineHealthEventCordonPreExisting)
	if !ours.Cordon {
		return
	}
	mt.forget(node)
	there := node.Spec.Unschedulable
	node.Spec.Unschedulable = false
	drop(node, nodemark.QuarantineHealthEventIsCordoned)
	reason := node.Labels[keys.CordonReason]
	for _, k := range []string{keys.CordonBy, keys.CordonReason, keys.CordonTimestamp} {
		delete(node.Labels, k)
	}
	if !there {
		return
	}
	nodemark.Label(node, keys.UncordonBy, us)
	nodemark.Label(node, keys.UncordonReason, labelValue(cut(reason, 55)+"-removed", 63))
	nodemark.Label(node, keys.UncordonTimestamp, timestamp(now))
}

// us is the value of the labels that record who cordoned or uncordoned a Node.
const us = "NVSentinel"

// forget removes the labels that record our cordons and uncordons under another
// prefix, which was configured before. They name us by their value; such labels
// of other writers do not.
func (mt Mutator) forget(node *corev1.Node) {
	for key, by := range maps.Clone(node.Labels) {
		prefix, isBy := strings.CutSuffix(key, "cordon-by")
		prefix = strings.TrimSuffix(prefix, "un")
		if !isBy || by != us || prefix == mt.LabelPrefix {
			continue
		}
		keys := nodemark.CordonLabelsWith(prefix)
		for _, k := range []string{keys.CordonBy, keys.CordonReason, keys.CordonTimestamp, keys.UncordonBy, keys.UncordonReason, keys.UncordonTimestamp} {
			delete(node.Labels, k)
		}
	}
}

// FollowCordon brings the taint by which Kubernetes follows a cordon in line
// with it. Written in the patch that cordons or uncordons, it leaves the node
// lifecycle controller nothing to write: one patch of the Node, not two, and no
// lost race with the second.
func FollowCordon(node *corev1.Node) {
	follows := func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable }
	switch {
	case !node.Spec.Unschedulable:
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, follows)
	case !slices.ContainsFunc(node.Spec.Taints, follows):
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
}

// applyTaints brings the session's taints to want. A wanted taint that was
// there before is its owner's; when the owner removes it, ours takes its place.
// One of the project that somebody removed is put back if restore is set.
func applyTaints(node *corev1.Node, ours []nodemark.AppliedTaint, want []record.Taint, restore bool) {
	var keep []nodemark.AppliedTaint
	for _, t := range ours {
		switch {
		case slices.Contains(want, t.Taint):
			if !t.PreExisting || nodemark.HasTaint(node, t.Taint) {
				keep = append(keep, t)
			}
			if !t.PreExisting && restore && !nodemark.HasTaint(node, t.Taint) {
				node.Spec.Taints = append(node.Spec.Taints, taint(t.Taint))
			}
		case !t.PreExisting:
			node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(x corev1.Taint) bool { return nodemark.TaintOf(x) == t.Taint })
		}
	}
	for _, t := range want {
		if slices.ContainsFunc(keep, func(k nodemark.AppliedTaint) bool { return k.Taint == t }) {
			continue
		}
		present := nodemark.HasTaint(node, t)
		keep = append(keep, nodemark.AppliedTaint{Taint: t, PreExisting: present})
		if !present {
			node.Spec.Taints = append(node.Spec.Taints, taint(t))
		}
	}
	nodemark.ApplyTaints(node, keep)
}

func taint(t record.Taint) corev1.Taint {
	return corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)}
}

func applyLabels(node *corev1.Node, ours, want []record.Label) {
	var keep []record.Label
	for _, l := range ours {
		if !slices.ContainsFunc(want, func(w record.Label) bool { return w.Key == l.Key }) && node.Labels[l.Key] == l.Value {
			delete(node.Labels, l.Key)
		}
	}
	for _, l := range want {
		_, present := node.Labels[l.Key]
		mine := slices.ContainsFunc(ours, func(o record.Label) bool { return o.Key == l.Key })
		if !present || mine {
			nodemark.Label(node, l.Key, l.Value)
			keep = append(keep, l)
		}
	}
	nodemark.ApplyLabels(node, keep)
}

// release ends the session on the Node and, unless a repair object claims the
// Node, takes back every mark of the project.
func (mt Mutator) release(node *corev1.Node, m nodemark.Marks, evaluated []string, now time.Time) {
	if !nodemark.HasMarks(node) {
		return
	}
	hand, ended := m.Released, ending(node, m.Unknown, evaluated)
	if m.Session == "" && m.AnyoneReleases {
		hand = m.Lifted
	}
	drop(node, nodemark.SessionAnnotation, nodemark.QuarantineHealthEvent, nodemark.UnknownAnnotation)
	nodemark.SetState(node, "")
	switch hand {
	case nodemark.ByUncordon, nodemark.ByRequest:
		nodemark.Annotate(node, nodemark.QuarantinedNodeUncordonedManually, nodemark.True)
	case nodemark.ByUntaint:
		nodemark.Annotate(node, nodemark.QuarantinedNodeUntaintedManually, nodemark.True)
	case nodemark.NotReleased:
		if m.Claim != "" {
			keep(node, m, now)
			return
		}
	}
	if hand != nodemark.NotReleased && ended != "" {
		nodemark.Annotate(node, nodemark.ReleasedAnnotation, ended)
	}
	mt.uncordon(node, m.Applied, now)
	applyTaints(node, m.Applied.Taints, nil, false)
	applyLabels(node, m.Applied.Labels, nil)
	drop(node, nodemark.LatestFaultRemediationState)
	nodemark.EndRelease(node)
}

// drop takes annotations away.
func drop(node *corev1.Node, keys ...string) {
	for _, key := range keys {
		nodemark.Annotate(node, key, "")
	}
}

var notLabel = regexp.MustCompile(`[^a-zA-Z0-9_.-]+`)

// labelValue turns a text into a legal label value of at most n characters.
func labelValue(s string, n int) string {
	return strings.Trim(cut(notLabel.ReplaceAllString(s, "-"), n), "-_.")
}

func cut(s string, n int) string { return s[:min(len(s), n)] }

func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15-04-05Z") }
