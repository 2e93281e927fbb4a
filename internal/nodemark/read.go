package nodemark

import (
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// Marks are what our services write on a Node. What is not there is empty; what somebody
// broke counts as if it were not there, unless that would let more be done to the node:
// see the fields.
type Marks struct {
	// Session is the id of the quarantine session that the Node bears, or empty.
	Session string
	// Unknown are the ids of faults of the session for which the store does not know
	// whether they are over. Any text there, readable or not, is at least one: nothing is
	// drained, repaired or released then.
	Unknown []string
	// State is the state label, as it is: it may be none of States.
	State State
	// Applied are the cordon, the taints and the labels that are ours.
	Applied Applied
	// Released is how a person released the session: by a request, or by lifting a mark
	// that Applied names. Without a session nobody did.
	Released ReleaseCause
	// Lifted is which mark that Applied names somebody lifted, in a session or after it;
	// LiftedBy is the user name of who did, or empty.
	Lifted   ReleaseCause
	LiftedBy string
	// Missing: nobody released the session, and a mark of it, or a cordon that was there
	// before it, is lifted and not yet restored.
	Missing bool
	// Restored is how often marks of the session were restored.
	Restored Restored
	// Request is a person's request to release the session, or empty.
	Request Request
	// AnyoneReleases: anyone who lifts a mark of the session releases it.
	AnyoneReleases bool
	// LetGo: a person released the node's last session, and that is noted.
	LetGo bool
	// Ended are the ids of the faults that a person's release of the last session
	// has ended.
	Ended []string
	// Claim is the uid of the repair object that claims the Node, or empty.
	Claim string
	// Reset is the uid of the GPUReset that took the GPU services off, or empty.
	Reset string
	// Schedulable: nothing keeps workloads off the Node. It is neither cordoned, by
	// whomever, nor does it bear a NoSchedule or NoExecute taint of the session.
	Schedulable bool
	// OptedOut: the node's labels take it out of our hands.
	OptedOut bool
	// RepeatOffender is the mark of a machine that needed too many repairs.
	RepeatOffender RepeatOffenderMark
	// Repairs is what ParseRepairs reads: what the session's repairs have come to.
	Repairs string
	// Canary is the id of the canary that a person asks for, or empty.
	Canary string
}

// Read reads the marks of a Node; of nil, which is no Node, there are none.
func Read(node *corev1.Node) Marks {
	if node == nil {
		return Marks{}
	}
	a := node.Annotations
	m := Marks{
		Session:        a[SessionAnnotation],
		Unknown:        ids(a[UnknownAnnotation]),
		State:          State(node.Labels[StateLabel]),
		Applied:        readApplied(a),
		LetGo:          a[QuarantinedNodeUncordonedManually] == True || a[QuarantinedNodeUntaintedManually] == True,
		Ended:          ids(a[ReleasedAnnotation]),
		Claim:          a[RepairAnnotation],
		Reset:          a[ResetAnnotation],
		OptedOut:       OptedOut(node.Labels),
		RepeatOffender: readRepeatOffender(node.Labels, a),
		Repairs:        a[LatestFaultRemediationState],
		Canary:         a[CanaryAnnotation],
		LiftedBy:       a[LiftedByAnnotation],
		Restored:       readRestored(a),
		Request:        requestOf(a, a[SessionAnnotation]),

		AnyoneReleases: value(a, AnyoneReleasesAnnotation) == True,
	}
	m.Lifted = m.Applied.TakenFrom(node)
	m.Released = m.released()
	foreign := m.Applied.CordonPreExisting && !node.Spec.Unschedulable
	m.Missing = m.Session != "" && m.Released == NotReleased && (m.Lifted != NotReleased || foreign)
	m.Schedulable = !node.Spec.Unschedulable && !m.Applied.keepOff(node)
	return m
}

// FactAnnotations are the keys of the annotations that decisions about a Node are made
// from. Who writes to a Node writes only while they are as they were read; what shows
// how far something is, and decides nothing, is not among them.
func FactAnnotations() []string {
	return []string{
		SessionAnnotation, UnknownAnnotation, RepairAnnotation,
		QuarantineHealthEvent, QuarantineHealthEventIsCordoned, QuarantineHealthEventCordonPreExisting,
		QuarantineHealthEventAppliedTaints, QuarantineHealthEventAppliedLabels,
		QuarantinedNodeUncordonedManually, QuarantinedNodeUntaintedManually, ReleasedAnnotation, RepeatOffenderAnnotation,
		LiftedByAnnotation, RestoredAnnotation, AnyoneReleasesAnnotation,
		FormerRepeatOffenderAnnotation, FormerReleaseOnAnyUncordonAnnotation,
	}
}

// FactLabels are those of the labels.
func FactLabels() []string {
	return []string{ManagedLabel, FormerManagedLabel, RepeatOffenderLabel, FormerRepeatOffenderLabel}
}

// ids reads a list with commas; only an empty text lists none.
func ids(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// Session is the session that a Node bears, or empty: Marks.Session for who asks
// many Nodes for nothing else.
func Session(node *corev1.Node) string { return node.Annotations[SessionAnnotation] }

// HasMarks reports whether a Node carries any mark of fault-quarantine.
func HasMarks(node *corev1.Node) bool {
	for _, key := range []string{
		SessionAnnotation, QuarantineHealthEvent, QuarantineHealthEventAppliedTaints, QuarantineHealthEventAppliedLabels,
		QuarantineHealthEventIsCordoned, QuarantineHealthEventCordonPreExisting, UnknownAnnotation,
	} {
		if _, ok := node.Annotations[key]; ok {
			return true
		}
	}
	return false
}

// The functions of this file change a Node in memory; kube.PatchNode sends what
// they changed.

// Label sets a label of a Node. No value is a value too.
func Label(node *corev1.Node, key, value string) {
	delete(node.Labels, formerKeys[key])
	set(&node.Labels, key, value)
}

// Annotate sets an annotation of a Node, or takes it away where there is no value.
func Annotate(node *corev1.Node, key, value string) {
	delete(node.Annotations, formerKeys[key])
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
// empty means that they are back.
func SetReset(node *corev1.Node, uid string) { Annotate(node, ResetAnnotation, uid) }

// SetRepeatOffender puts the mark of a repeat offender on a Node, or takes ours away: a label of
// another value is a person's.
func SetRepeatOffender(node *corev1.Node, m RepeatOffenderMark) {
	Annotate(node, RepeatOffenderAnnotation, m.Note)
	if m.Label {
		Label(node, RepeatOffenderLabel, RepeatOffenderTrue)
		return
	}
	for _, key := range []string{RepeatOffenderLabel, FormerRepeatOffenderLabel} {
		if node.Labels[key] == RepeatOffenderTrue {
			delete(node.Labels, key)
		}
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
