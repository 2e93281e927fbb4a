package nodemark

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// The functions of this file change a Node in memory; kube.PatchNode sends what
// they changed.

// Label sets a label of a Node. No value is a value too.
func Label(node *corev1.Node, key, value string) { set(&node.Labels, key, value) }

// Annotate sets an annotation of a Node, or takes it away where there is no value.
func Annotate(node *corev1.Node, key, value string) {
	if value == "" {
		delete(node.Annotations, key)
		return
	}
	set(&node.Annotations, key, value)
}

// SetState writes the state label, or takes it away.
func SetState(node *corev1.Node, s State) {
	if s == "" {
		delete(node.Labels, StateLabel)
		return
	}
	Label(node, StateLabel, string(s))
}

// SetClaim writes the uid of the repair object that claims a Node; empty drops the
// claim.
func SetClaim(node *corev1.Node, uid string) { Annotate(node, RepairAnnotation, uid) }

// SetReset writes the uid of the GPUReset that takes the GPU services off a Node;
// empty says that they are back.
func SetReset(node *corev1.Node, uid string) { Annotate(node, ResetAnnotation, uid) }

// SetLemon puts the mark of a lemon on a Node, or takes ours away: a label of
// another value is a person's.
func SetLemon(node *corev1.Node, m LemonMark) {
	Annotate(node, LemonAnnotation, m.Note)
	if m.Label {
		Label(node, LemonLabel, LemonYes)
	} else if node.Labels[LemonLabel] == LemonYes {
		delete(node.Labels, LemonLabel)
	}
}

// ApplyTaints and ApplyLabels write which taints and labels of a Node are ours.
func ApplyTaints(node *corev1.Node, taints []AppliedTaint) {
	Annotate(node, QuarantineHealthEventAppliedTaints, text(taints))
}

// ApplyLabels is in the comment of ApplyTaints.
func ApplyLabels(node *corev1.Node, labels []record.Label) {
	Annotate(node, QuarantineHealthEventAppliedLabels, text(labels))
}

// text is a list as JSON; nothing for an empty one.
func text[T any](list []T) string {
	if len(list) == 0 {
		return ""
	}
	b, err := json.Marshal(list)
	if err != nil {
		return "[]" // texts and booleans always encode
	}
	return string(b)
}

func set(m *map[string]string, key, value string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = value
}
