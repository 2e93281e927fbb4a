package marks

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/pkg/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// maxUnknown bounds the ids in the annotation of unknown faults.
const maxUnknown = 64

// maxEnded bounds the ids in the annotation of faults that a person has ended.
const maxEnded = 2 * maxUnknown

// shown is a fault in the annotation of active ones.
type shown struct {
	record.Record
	raw json.RawMessage
}

// active are the faults that a Node lists as active; an annotation that somebody
// broke lists none.
func active(node *corev1.Node) (out []shown) {
	var list []json.RawMessage
	if json.Unmarshal([]byte(node.Annotations[nodemark.QuarantineHealthEvent]), &list) != nil {
		return nil
	}
	for _, raw := range list {
		var event protos.HealthEvent
		if json.Unmarshal(raw, &event) != nil || event.GetId() == "" {
			continue
		}
		s := shown{raw: raw, Record: record.Record{ID: event.GetId()}}
		if len(event.GetEntitiesImpacted()) < maxShownList && len(event.GetErrorCode()) < maxShownList { // nothing is cut off
			s.Event = record.FromProto(&event)
			s.Seq, s.SeqEpoch, _ = s.Event.Seq()
		}
		out = append(out, s)
	}
	return out
}

// Active are the faults that a Node lists as active; one that it does not list
// whole has its id alone.
func Active(node *corev1.Node) (out []record.Record) {
	for _, s := range active(node) {
		out = append(out, s.Record)
	}
	return out
}

// Doubted are the ids of faults that a Node lists as unknown to the store.
func Doubted(node *corev1.Node) []string {
	if list := node.Annotations[nodemark.UnknownAnnotation]; list != "" {
		return strings.Split(list, ",")
	}
	return nil
}

// LetGo says whether a person's release of the last session is noted on a Node.
func LetGo(node *corev1.Node) bool {
	a := node.Annotations
	return a[nodemark.QuarantinedNodeUncordonedManually] == nodemark.True || a[nodemark.QuarantinedNodeUntaintedManually] == nodemark.True
}

// ending are the ids of the faults that a person who releases a Node ends: those
// that it lists as active or unknown, and those that were judged to end.
func ending(node *corev1.Node, judged []string) string {
	ids := Doubted(node)
	for _, s := range active(node) {
		if !slices.Contains(ids, s.ID) {
			ids = append(ids, s.ID)
		}
	}
	for _, id := range judged {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return strings.Join(ids[:min(len(ids), maxEnded)], ",")
}

// Ended are the ids of the faults that a person's release of the Node's last
// session has ended.
func Ended(node *corev1.Node) []string {
	if list := node.Annotations[nodemark.ReleasedAnnotation]; list != "" {
		return strings.Split(list, ",")
	}
	return nil
}

// Keep adds everything that a Node bears of ours to what is desired, because
// the store cannot tell of the unknown faults: it knows too little to take
// anything away.
func (d Desired) Keep(node *corev1.Node, unknown []string) Desired {
	c := readClaims(node)
	d.Unknown = unknown
	if d.Session == "" {
		d.Session = c.session
	}
	d.Effects.Cordon = d.Effects.Cordon || c.cordoned || c.cordonPreExisting
	d.Effects.Taints, d.Effects.Labels = slices.Clone(d.Effects.Taints), slices.Clone(d.Effects.Labels)
	for _, t := range c.taints {
		if !slices.Contains(d.Effects.Taints, t.Taint) {
			d.Effects.Taints = append(d.Effects.Taints, t.Taint)
		}
	}
	for _, l := range c.labels {
		if !slices.Contains(d.Effects.Labels, l) {
			d.Effects.Labels = append(d.Effects.Labels, l)
		}
	}
	for _, s := range active(node) {
		if slices.Contains(unknown, s.ID) && !d.lists(s.ID) {
			d.Lost = append(d.Lost, s.raw)
		}
	}
	return d
}

func (d Desired) lists(id string) bool {
	for _, e := range d.Faults {
		if e.ID == id {
			return true
		}
	}
	return false
}
