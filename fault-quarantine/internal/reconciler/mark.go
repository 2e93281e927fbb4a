package reconciler

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-quarantine/decision"
	"github.com/nvidia/nvsentinel/fault-quarantine/marks"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/retry"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Reasons of the Events on the Node.
const (
	// quarantinedReason: a quarantine session of the node began, with the cordon, taints or labels of the matching rule
	// sets. Action: none. `nvsentinel why <node>` prints the fault.
	quarantinedReason = "NodeQuarantined"
	// releasedReason: the quarantine session of the node ended, for the cause that the Event names, and its cordon, taints
	// and labels were removed. Action: none.
	releasedReason = "NodeReleased"
	// heldReason: a fault of the node waits, because a budget has no capacity or the emergency stop is on. Action: repair
	// or release the nodes that the Event names, raise the budget, or run `nvsentinel resume`.
	heldReason = "QuarantineHeld"
	// deadLetterReason: a record crashed fault-quarantine each time, so it is a dead letter and was not evaluated. Action:
	// check the node yourself, and report the record as a defect.
	deadLetterReason = "RecordDeadLettered"
)

// Event is what is reported about a Node.
type Event struct {
	Warning         bool
	Reason, Message string
}

// mark brings the Node to what its open records ask for, then updates the
// records whose quarantine is finished by that; written are the revisions that the
// evaluation made. It returns the Node as it is then.
func (rc *Reconciler) mark(ctx context.Context, node *corev1.Node, j decision.Evaluation, written map[string]int64) (*corev1.Node, error) {
	desired := marks.Of(j.Open).Without(j.Condensed)
	for _, r := range j.Changed {
		if r.Status.NodeQuarantined == record.QuarantineCanceled {
			desired.Ended = append(desired.Ended, r.ID)
		}
	}
	rc.recordHeld(ctx, node, j.Changed)
	if len(j.Unknown) > 0 {
		if j.Leave {
			return node, nil
		}
		desired = desired.Keep(node, j.Unknown)
	}
	if desired.Session == "" && !nodemark.HasMarks(node) {
		rc.noteRestored(ctx, node.Name, node, node)
		return node, nil
	}
	now := rc.Clock.Now()
	if why, on := rc.Pause.On(); on && rc.adds(node, desired, now) {
		return node, retry.Park(rc.Pause.Wait(), why)
	}
	after, news, err := rc.patch(ctx, node, func(n *corev1.Node) { rc.apply(n, desired, now) })
	if err != nil {
		return node, fmt.Errorf("updating cordon, taints and labels of node %s: %w", node.Name, err)
	}
	rc.note(ctx, node, after, desired)
	rc.noteRestored(ctx, node.Name, node, after)
	if err := rc.finish(ctx, j, written, now); err != nil || !news {
		return after, err
	}
	return after, retry.Wait(0, "the node changed during the update of its cordon, taints and labels")
}

// apply brings a Node to what is desired. A cordon of the project brings its taint
// along, and no schedulable Node keeps it, regardless of who uncordoned it.
func (rc *Reconciler) apply(n *corev1.Node, desired marks.Desired, now time.Time) {
	was := n.Spec.Unschedulable
	rc.Mutator.Apply(n, desired, now)
	if !was || !n.Spec.Unschedulable {
		marks.FollowCordon(n)
	}
}

// patch patches the Node; news is whether somebody else changed it meanwhile.
func (rc *Reconciler) patch(ctx context.Context, node *corev1.Node, mutate func(*corev1.Node)) (after *corev1.Node, news bool, err error) {
	rc.ownWrites.Begin(node.Name)
	after, err = rc.Nodes.Patch(ctx, node, mutate)
	if err != nil {
		rc.ownWrites.End(node.Name, "")
		return nil, false, err
	}
	return after, rc.ownWrites.End(node.Name, after.ResourceVersion), nil
}

func (rc *Reconciler) recordHeld(ctx context.Context, node *corev1.Node, changed []record.Record) {
	for _, r := range changed {
		if r.Reason() == record.Held {
			rc.Nodes.Note(ctx, node, Event{Warning: true, Reason: heldReason, Message: "Fault " + r.ID + " is held: " + r.Status.QuarantineVerdict.Detail})
		}
	}
}

func (rc *Reconciler) note(ctx context.Context, was, is *corev1.Node, desired marks.Desired) {
	before := nodemark.Session(was)
	if before == desired.Session || before != "" && record.SameID(is.Name, before, desired.Session) {
		return
	}
	if before != "" {
		rc.Metrics.Released.Inc()
		why := "no fault is open"
		switch nodemark.Read(was).Released {
		case nodemark.ByUncordon:
			rc.Metrics.Uncordoned.Inc()
			why = removedBy(was) + " uncordoned the node"
		case nodemark.ByUntaint:
			rc.Metrics.Untainted.Inc()
			why = removedBy(was) + " removed a taint of the quarantine session"
		case nodemark.ByRequest:
			r := nodemark.Read(was).Request
			rc.Metrics.Requested.Inc()
			why = r.By + " released the node: " + r.Reason
		case nodemark.NotReleased:
		}
		if uid := nodemark.Read(is).Claim; desired.Session == "" && nodemark.HasMarks(is) && uid != "" {
			why += ". Cordon, taints and labels stay until the maintenance object with uid " + uid + ", which claims the node, has ended"
		}
		rc.Nodes.Note(ctx, is, Event{Reason: releasedReason, Message: "Quarantine session " + before + " ended: " + why})
	}
	if desired.Session != "" {
		rc.Metrics.Quarantined.Inc()
		rc.Nodes.Note(ctx, is, Event{Reason: quarantinedReason, Message: "Quarantine session " + desired.Session + " opened"})
	}
}

// removedBy names who lifted a mark and released the Node by it.
func removedBy(node *corev1.Node) string {
	m := nodemark.Read(node)
	switch {
	case nodemark.WriterOf(m.LiftedBy) == nodemark.Person:
		return "a user (" + m.LiftedBy + ")"
	case m.LiftedBy != "":
		return m.LiftedBy
	}
	return "an unknown client"
}

// finish records when the Node was seen to bear the marks of a record. What this
// evaluation changed stands at the revision that was written; anything else that
// changed it meanwhile is a conflict.
func (rc *Reconciler) finish(ctx context.Context, j decision.Evaluation, written map[string]int64, now time.Time) error {
	unmarked := slices.DeleteFunc(slices.Clone(j.Open), func(r record.Record) bool {
		return r.Status.QuarantineFinishTimestamp != nil || record.NeedsNewer(r) != ""
	})
	for batch := range slices.Chunk(unmarked, batchOf(j)) {
		changes := make([]store.Change, len(batch))
		for i, r := range batch {
			if made, changed := written[r.ID]; changed {
				r.Revision = made
			}
			if j.Condensed[r.ID] {
				full, err := rc.readFull(ctx, r)
				if err != nil {
					return err
				}
				r = full
			}
			r.Status.QuarantineFinishTimestamp = &now
			changes[i] = store.Change{ID: r.ID, Revision: r.Revision, Status: r.Status, ExpireAt: r.ExpireAt}
		}
		if _, err := rc.update(ctx, changes); err != nil {
			return err
		}
	}
	return nil
}
