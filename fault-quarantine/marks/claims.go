// Package marks computes what a Node must look like from its open faults: the
// cordon, taints, labels and annotations of the session as a whole, and their
// removal. It is pure; foreign cordons, taints, labels and annotations stay.
package marks

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// claimedTaint is an entry of the annotation of applied taints. PreExisting
// ones were there before us and stay.
type claimedTaint struct {
	record.Taint
	PreExisting bool `json:"preExisting,omitempty"`
}

// claims are the marks our annotations say are ours.
type claims struct {
	session           string
	cordoned          bool
	cordonPreExisting bool
	taints            []claimedTaint
	labels            []record.Label
}

func readClaims(node *corev1.Node) claims {
	a := node.Annotations
	c := claims{
		session:           a[nodemark.SessionAnnotation],
		cordoned:          a[nodemark.QuarantineHealthEventIsCordoned] == nodemark.True,
		cordonPreExisting: a[nodemark.QuarantineHealthEventCordonPreExisting] == nodemark.True,
	}
	// An annotation somebody broke claims nothing: we then remove nothing.
	_ = json.Unmarshal([]byte(a[nodemark.QuarantineHealthEventAppliedTaints]), &c.taints)
	_ = json.Unmarshal([]byte(a[nodemark.QuarantineHealthEventAppliedLabels]), &c.labels)
	return c
}

// Bears says whether a Node carries any mark of fault-quarantine.
func Bears(node *corev1.Node) bool {
	for _, key := range ownAnnotations {
		if _, ok := node.Annotations[key]; ok {
			return true
		}
	}
	return false
}

// ownAnnotations are the annotations that exist only while a Node is marked.
var ownAnnotations = []string{
	nodemark.SessionAnnotation, nodemark.QuarantineHealthEvent,
	nodemark.QuarantineHealthEventAppliedTaints, nodemark.QuarantineHealthEventAppliedLabels,
	nodemark.QuarantineHealthEventIsCordoned, nodemark.QuarantineHealthEventCordonPreExisting,
	nodemark.UnknownAnnotation,
}

// Hand is how a person released a Node.
type Hand string

// Hands.
const (
	ByNobody   Hand = ""
	ByUncordon Hand = "uncordon"
	ByUntaint  Hand = "untaint"
)

// ReleasedBy says whether a person took away a mark that our annotations claim,
// and which: the cordon or one of the taints. No claim means not yet written.
func ReleasedBy(node *corev1.Node) Hand {
	c := readClaims(node)
	if c.session == "" {
		return ByNobody
	}
	return c.takenBy(node)
}

// takenBy says how a person took away a mark that the claims name, in a session
// or after it.
func (c claims) takenBy(node *corev1.Node) Hand {
	switch {
	case c.cordoned && !node.Spec.Unschedulable:
		return ByUncordon
	case slices.ContainsFunc(c.taints, func(t claimedTaint) bool { return !t.PreExisting && !hasTaint(node, t.Taint) }):
		return ByUntaint
	}
	return ByNobody
}

// Released says whether a person took away a mark that our annotations claim.
func Released(node *corev1.Node) bool { return ReleasedBy(node) != ByNobody }

// Session is the session the Node bears, or empty.
func Session(node *corev1.Node) string { return node.Annotations[nodemark.SessionAnnotation] }

func hasTaint(node *corev1.Node, t record.Taint) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(x corev1.Taint) bool { return sameTaint(x, t) })
}

func sameTaint(x corev1.Taint, t record.Taint) bool {
	return x.Key == t.Key && x.Value == t.Value && string(x.Effect) == t.Effect
}
