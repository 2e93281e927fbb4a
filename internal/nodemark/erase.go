package nodemark

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Erase takes off a Node what the services say in its labels and annotations, for a
// cluster that loses the suite. It takes back no cordon, taint or label of a session:
// whoever erases does that first. What only people write stays, and so does
// ResetAnnotation: GPU services are off the node until somebody sets their labels.
func Erase(node *corev1.Node) {
	if _, noted := node.Annotations[LemonAnnotation]; noted { // else the label is a person's
		SetLemon(node, LemonMark{})
	}
	ours := append(FactAnnotations(), LatestFaultRemediationState, CanaryAnnotation)
	maps.DeleteFunc(node.Annotations, func(key, _ string) bool {
		return slices.Contains(ours, key) || strings.HasPrefix(key, ClearPrefix) || strings.HasPrefix(key, ReleasePrefix)
	})
	maps.DeleteFunc(node.Labels, func(key, _ string) bool {
		return key == StateLabel || key == DCGMVersionLabel || key == DriverInstalledLabel || key == KataEnabledLabel || counts(key)
	})
}

// counts says whether a key is one of CountLabelsOf some class.
func counts(key string) bool {
	before, _, _ := strings.Cut(key, ".count.")
	_, class, _ := strings.Cut(before, "/")
	l := CountLabelsOf(class)
	return class != "" && (key == l.Current || key == l.Expected || key == l.Group)
}

// BearsOurName says whether a key looks like one of the suite's, whoever writes it.
func BearsOurName(key string) bool { return strings.Contains(strings.ToLower(key), "nvsentinel") }

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

// AuthorOf tells a condition of the connectors by its reason, which bears the type's
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
