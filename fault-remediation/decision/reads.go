package decision

import (
	"slices"
	"time"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// Reads are what a decision depends on that was not read yet.
type Reads struct {
	// Node, with the current object and the proofs of boots that are past.
	Node bool
	// Cached: the Node as a cache shows it is enough.
	Cached bool
	// Kubelet is whether the Node's kubelet is alive.
	Kubelet bool
	// Pods are those that had to go and are on the node.
	Pods bool
}

// Needs returns what has to be read next. A view of the records alone needs the Node, or not
// even that; cached are the marks of the Node in a cache, nil when it has none. A view with
// Node and object needs what only some decisions depend on.
func Needs(v View, cached *nodemark.Marks, now time.Time) Reads {
	if v.Node.Presence == Unread {
		return Reads{Node: needsNode(v.Records), Cached: cached != nil && firstOfSession(v.Records, *cached)}
	}
	return Reads{Kubelet: needsKubelet(v), Pods: mayCreate(v) && !drainedJustNow(v, now)}
}

// needsNode reports whether Next looks at the Node, its object or its pods: not while
// every record is open, not drained and without a repair. A node that goes into
// quarantine is enqueued before its drain; nothing more is worth reading then.
func needsNode(records []record.Record) bool {
	return slices.ContainsFunc(records, func(r record.Record) bool {
		return !record.Open(r) || record.DrainSucceeded(r) || r.Status.Remediation != nil
	})
}

// firstOfSession reports whether a Node that bears these marks, as a cache shows it, is enough
// to look at: nothing was repaired yet, and nothing on the Node shows that anything began.
// The first thing that is written is then the Node's state, by a patch that holds only
// while the Node is in every fact as it was seen; see kube.PatchNode.
func firstOfSession(records []record.Record, m nodemark.Marks) bool {
	begun := slices.ContainsFunc(records, func(r record.Record) bool {
		return !record.Open(r) || r.Status.Session != m.Session || r.Status.Remediation != nil
	})
	return !begun && m.Session != "" && m.Claim == "" && len(m.Unknown) == 0 && m.Released == nodemark.NotReleased &&
		!m.OptedOut && (m.State == nodemark.Quarantined || m.State == nodemark.DrainSucceeded)
}

// mayCreate reports whether Next could create the object whose name is reserved, so
// that the pods of the node are worth reading: they are asked for right before
// the creation, not before the name is reserved.
func mayCreate(v View) bool {
	cur, ok := Current(v.Records)
	if !ok || cur.Attempt.UID != "" || v.Node.Presence != Present || v.Object.Presence != Absent {
		return false
	}
	open := only(v.Records, record.Open)
	return slices.ContainsFunc(open, unremediated) && !slices.ContainsFunc(open, func(r record.Record) bool { return !record.DrainSucceeded(r) })
}

// needsKubelet reports whether Next looks at the Node's kubelet: the Node reports Ready under
// the boot that an earlier signal should have ended.
func needsKubelet(v View) bool {
	if cur, ok := Current(v.Records); ok && cur.Attempt.UID != "" || v.Node.Presence != Present || !v.Node.Ready {
		return false
	}
	d := decision{v: v}
	due := func(r record.Record) bool {
		return record.Open(r) && unremediated(r) && r.Status.Session == v.Node.Session
	}
	return slices.ContainsFunc(v.Records, due) && slices.ContainsFunc(attempts(v.Records), func(x Ref) bool {
		return failed(x.Attempt) && x.Attempt.Machine == fault.Machine(v.Node.Identity) && !d.bootedSince(x.Attempt)
	})
}

// drainFresh is for how long the drain's own look at the pods stands for ours.
const drainFresh = 2 * time.Second

// drainedJustNow reports whether the drainer listed the node's pods a moment ago, and found
// none that has to go for any open fault: it listed them right before it gave Succeeded,
// for all faults that were open then, and a fault that is not drained lets nothing be
// created.
func drainedJustNow(v View, now time.Time) bool {
	return slices.ContainsFunc(v.Records, func(r record.Record) bool {
		at := r.Status.DrainFinishTimestamp
		return record.Open(r) && r.Status.Session == v.Node.Session && at != nil &&
			r.Status.UserPodsEvictionStatus.Status == record.EvictionSucceeded && now.Sub(*at).Abs() < drainFresh
	})
}
