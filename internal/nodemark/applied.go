package nodemark

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Applied are the marks of the Node's own fields that are ours according to our
// annotations. An annotation that somebody broke names none, not even those of it that
// can be read: what we cannot be sure of is not ours to take away, and that it is missing
// is no release.
type Applied struct {
	// Cordon: the cordon is ours. CordonPreExisting: somebody else's was there before.
	Cordon, CordonPreExisting bool
	Taints                    []AppliedTaint
	Labels                    []record.Label
}

// AppliedTaint is a taint of the session. PreExisting ones were there before us
// and stay.
type AppliedTaint struct {
	record.Taint
	PreExisting bool `json:"preExisting,omitempty"`
}

// ReleaseCause is how a person released a Node, or which mark somebody lifted.
type ReleaseCause string

// Causes of a release.
const (
	NotReleased ReleaseCause = ""
	ByUncordon  ReleaseCause = "uncordon"
	ByUntaint   ReleaseCause = "untaint"
	// ByRequest: a person asked for it; see ReleasePrefix.
	ByRequest ReleaseCause = "request"
)

func readApplied(annotations map[string]string) Applied {
	return Applied{
		Cordon:            annotations[QuarantineHealthEventIsCordoned] == True,
		CordonPreExisting: annotations[QuarantineHealthEventCordonPreExisting] == True,
		Taints:            list[AppliedTaint](annotations[QuarantineHealthEventAppliedTaints]),
		Labels:            list[record.Label](annotations[QuarantineHealthEventAppliedLabels]),
	}
}

// list reads a JSON array, whole or not at all.
func list[T any](text string) []T {
	var out []T
	if text == "" || json.Unmarshal([]byte(text), &out) != nil {
		return nil
	}
	return out
}

// TakenFrom returns which of these marks somebody took away from a Node, in a session or
// after it.
func (a Applied) TakenFrom(node *corev1.Node) ReleaseCause {
	switch {
	case a.Cordon && !node.Spec.Unschedulable:
		return ByUncordon
	case slices.ContainsFunc(a.Taints, func(t AppliedTaint) bool { return !t.PreExisting && !HasTaint(node, t.Taint) }):
		return ByUntaint
	}
	return NotReleased
}

// keepOff reports whether one of the taints is on the Node and keeps workloads off it.
func (a Applied) keepOff(node *corev1.Node) bool {
	return slices.ContainsFunc(a.Taints, func(t AppliedTaint) bool { return KeepsOff(t.Taint) && HasTaint(node, t.Taint) })
}

// KeepsOff reports whether a taint keeps workloads that do not tolerate it off a Node.
func KeepsOff(t record.Taint) bool {
	return t.Effect == string(corev1.TaintEffectNoSchedule) || t.Effect == string(corev1.TaintEffectNoExecute)
}

// HasTaint reports whether a Node bears a taint with key, value and effect.
func HasTaint(node *corev1.Node, t record.Taint) bool { return slices.Contains(Taints(node), t) }

// Taints are the Node's taints, whosever they are.
func Taints(node *corev1.Node) (out []record.Taint) {
	for _, t := range node.Spec.Taints {
		out = append(out, TaintOf(t))
	}
	return out
}

// TaintOf is a Node's taint without the time at which Kubernetes put it on.
func TaintOf(t corev1.Taint) record.Taint {
	return record.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)}
}

// Erase takes off a Node what the services write in its labels and annotations, for a
// cluster that loses the suite. It takes back no cordon, taint or label of a session:
// the caller does that first. What only people write stays, and so does
// ResetAnnotation: GPU services are off the node until somebody sets their labels.
func Erase(node *corev1.Node) {
	_, noted := node.Annotations[RepeatOffenderAnnotation]
	_, former := node.Annotations[FormerRepeatOffenderAnnotation]
	if noted || former { // else the label is a person's
		SetRepeatOffender(node, RepeatOffenderMark{})
	}
	ours := append(FactAnnotations(), LatestFaultRemediationState, CanaryAnnotation)
	maps.DeleteFunc(node.Annotations, func(key, _ string) bool {
		return slices.Contains(ours, key) || strings.HasPrefix(key, ClearPrefix) || strings.HasPrefix(key, ReleasePrefix)
	})
	maps.DeleteFunc(node.Labels, func(key, _ string) bool {
		return key == StateLabel || key == DCGMVersionLabel || key == DriverInstalledLabel || key == KataEnabledLabel || counts(key)
	})
}

// counts reports whether a key is one of CountLabelsOf some class.
func counts(key string) bool {
	before, _, _ := strings.Cut(key, ".count.")
	_, class, _ := strings.Cut(before, "/")
	l := CountLabelsOf(class)
	return class != "" && (key == l.Current || key == l.Expected || key == l.Group)
}

// HasProjectPrefix reports whether a key looks like one of the suite's, no matter who writes it.
func HasProjectPrefix(key string) bool { return strings.Contains(strings.ToLower(key), "nvsentinel") }

// Author is who wrote a condition of a Node.
type Author string

// Authors. Perhaps: the reason is as the connectors write it, and the rest is not.
const (
	Stranger  Author = "stranger"
	Perhaps   Author = "perhaps"
	Connector Author = "connector"
)

// ActionText precedes the recommended action in the text of a fault in a condition, and
// CutText ends a text of which not even that could be kept.
const (
	ActionText = "Recommended Action="
	CutText    = ";..."
)

// AuthorOf recognizes a condition of the connectors by its reason, which bears the type's
// name, and by its status and text.
func AuthorOf(c corev1.NodeCondition) Author {
	var ours bool
	switch c.Reason {
	case HealthyReason(string(c.Type)):
		ours = c.Status == corev1.ConditionFalse && c.Message == record.HealthyMessage
	case UnhealthyReason(string(c.Type)):
		ours = c.Status == corev1.ConditionTrue && (strings.Contains(c.Message, ActionText) || strings.HasSuffix(c.Message, CutText))
	default:
		return Stranger
	}
	if ours {
		return Connector
	}
	return Perhaps
}
