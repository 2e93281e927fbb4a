package decision

import (
	"slices"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// Source is where a Node is read.
type Source string

// Sources.
const (
	// Nowhere: the node has no records and no marks, its Node does not matter.
	Nowhere Source = ""
	// Cache: what a cache has of the Node is enough.
	Cache Source = "cache"
	// Server is the API server itself.
	Server Source = "server"
)

// Reads is what has to be read of a node, besides its pending and open records, before
// it is evaluated.
type Reads struct {
	// Node is where the Node is read.
	Node Source
	// Fresh are the faults that are not evaluated yet: the recoveries that are later are
	// read. A held fault met every recovery when that was evaluated.
	Fresh []record.Record
	// Boots: what proves that a boot is over is read too. A fault of the present boot
	// needs no proof.
	Boots bool
	// Named are the faults that the Node lists as active and that are neither pending
	// nor open: their records are read, a release needs them.
	Named []record.Record
	// Session: one record of the Node's session is read, if none of Named is of it.
	Session bool
}

// Needs returns what has to be read of a node. cached is the Node that a cache has, or nil;
// marked is whether it bears marks of the project there. It is called with the records alone
// for where to read the Node, and once more with the Node for the rest.
func Needs(v View, cached *Node, marked bool) Reads {
	r := Reads{Node: source(v, cached, marked), Fresh: fresh(v.Pending)}
	if v.Node == nil {
		return r
	}
	r.Boots = slices.ContainsFunc(r.Fresh, func(f record.Record) bool {
		boot := f.Event.BootID()
		return boot != "" && boot != v.Node.Identity.BootID && fault.CuredByReboot(f.Event.EffectiveAction())
	})
	if v.Node.Session == "" {
		return r
	}
	known, sessions := map[string]bool{}, map[string]bool{}
	for _, p := range slices.Concat(v.Pending, v.Open) {
		known[p.ID], sessions[p.Status.Session] = true, true
	}
	r.Session = !sessions[v.Node.Session]
	for _, a := range v.Node.Active {
		if !known[a.ID] {
			r.Named = append(r.Named, a)
		}
	}
	return r
}

func source(v View, cached *Node, marked bool) Source {
	switch {
	case len(v.Pending)+len(v.Open) == 0 && !marked:
		return Nowhere
	case cached != nil && cached.Suffices(v.Pending, v.Open):
		return Cache
	}
	return Server
}

func fresh(pending []record.Record) (out []record.Record) {
	for _, r := range pending {
		if !r.Evaluated() && r.IsFault() {
			out = append(out, r)
		}
	}
	return out
}

// Suffices reports whether a Node as a cache shows it is enough for the evaluation: it bears
// no marks of the project, none of its faults is open, and what waits was reported for the
// same machine and boot that it shows. What is written to the Node then holds only while it
// is in every fact as it was seen. A Node that bears marks is read from the API server: by
// a cache that is behind, what a person has just done would be undone.
func (n *Node) Suffices(pending, open []record.Record) bool {
	bare := n.Session == "" && !n.RequiresRelease && !n.LetGo && !n.OptedOut && len(n.Active)+len(n.Unconfirmed)+len(n.Ended) == 0
	return bare && len(open) == 0 && !slices.ContainsFunc(pending, func(r record.Record) bool { return r.Node != n.Identity })
}
