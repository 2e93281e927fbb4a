package marks

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// maxUnknown bounds the ids in the annotation of unknown faults.
const maxUnknown = 64

// maxEnded bounds the ids in the annotation of faults that a person has ended.
const maxEnded = 2 * maxUnknown

// Active are the faults that a Node lists as active; one that it does not list
// whole has its id alone.
func Active(node *corev1.Node) (out []record.Record) {
	for _, f := range nodemark.ListedFaults(node) {
		r := record.Record{ID: f.Event.ID}
		if f.Complete {
			r.Event = f.Event
			r.Seq, r.SeqEpoch, _ = r.Event.Seq()
		}
		out = append(out, r)
	}
	return out
}

// ending are the ids of the faults that a person who releases a Node ends: those
// that it lists as active or unknown, and those that the evaluation ended.
func ending(node *corev1.Node, unknown, evaluated []string) string {
	ids := slices.Clone(unknown)
	for _, f := range nodemark.ListedFaults(node) {
		if !slices.Contains(ids, f.Event.ID) {
			ids = append(ids, f.Event.ID)
		}
	}
	for _, id := range evaluated {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return strings.Join(ids[:min(len(ids), maxEnded)], ",")
}

// Keep adds everything that a Node bears of the project to what is desired, because
// the store has no proof about the unknown faults: it knows too little to take
// anything away.
func (d Desired) Keep(node *corev1.Node, unknown []string) Desired {
	m := nodemark.Read(node)
	d.Unknown = unknown
	if d.Session == "" {
		d.Session = m.Session
	}
	d.Effects.Cordon = d.Effects.Cordon || m.Applied.Cordon || m.Applied.CordonPreExisting
	d.Effects.Taints, d.Effects.Labels = slices.Clone(d.Effects.Taints), slices.Clone(d.Effects.Labels)
	for _, t := range m.Applied.Taints {
		if !slices.Contains(d.Effects.Taints, t.Taint) {
			d.Effects.Taints = append(d.Effects.Taints, t.Taint)
		}
	}
	for _, l := range m.Applied.Labels {
		if !slices.Contains(d.Effects.Labels, l) {
			d.Effects.Labels = append(d.Effects.Labels, l)
		}
	}
	for _, f := range nodemark.ListedFaults(node) {
		if slices.Contains(unknown, f.Event.ID) && !d.lists(f.Event.ID) {
			d.Lost = append(d.Lost, f.Raw)
		}
	}
	return d
}

func (d Desired) lists(id string) bool {
	return slices.ContainsFunc(d.Faults, func(e record.Event) bool { return e.ID == id })
}
