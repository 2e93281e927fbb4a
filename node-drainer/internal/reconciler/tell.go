package reconciler

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/node-drainer/decision"
)

// Reasons of the Events on the Node.
const (
	drainStarted   = "DrainStarted"
	drainSucceeded = "DrainSucceeded"
	drainCancelled = "DrainCancelled"
	drainBlocked   = "DrainBlocked"
	newerVersion   = "NewerVersion"
	// The two reasons that the predecessor's users know.
	awaitingCompletion = "AwaitingPodCompletion"
	awaitingDeadline   = "WaitingBeforeForceDelete"
)

// tell makes a step visible: log, metrics and an Event on the Node.
func (d *Reconciler) tell(node string, n *notes, sc snapshot, step decision.Step) {
	d.metrics.stepped(step)
	if len(step.Stamps) > 0 || len(step.Pods) > 0 {
		d.log.Info("drain step", "node", node, "session", step.Session, "step", string(step.Kind),
			"reason", string(step.Why), "pods", len(step.Pods), "left", step.Left, "records", len(step.Stamps))
	}
	if step.Kind == decision.Finish && step.Why == decision.PodsGone {
		d.metrics.drained(sc.view.Records, step, d.clock.Now())
	}
	e := announcement(sc.view, step)
	if e.reason == "" || sc.node == nil {
		return
	}
	if !n.announced[e] { // once in this process
		n.announced[e] = true
		d.events.Event(eventrecorder.Node(node), e.kind(), e.reason, e.message)
	}
}

// event is what an Event says; its message changes with the session alone, so
// that the same news raises a count.
type event struct{ reason, message string }

// kind is the type of the Event: what asks for somebody is a Warning.
func (e event) kind() string {
	if e.reason == drainBlocked || e.reason == newerVersion {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

// announcement is the Event of a step; empty if it is not worth one, as the end
// of a drain that had nothing to move.
func announcement(v decision.View, step decision.Step) event {
	switch {
	case step.Kind == decision.Start:
		return event{drainStarted, "pods have to leave the node, session " + step.Session}
	case step.Kind == decision.Finish && step.Why == decision.PodsGone && wasRunning(v, step):
		return event{drainSucceeded, "no pod that had to leave the node is left, session " + step.Session}
	case step.Kind == decision.Cancel && wasRunning(v, step):
		return event{drainCancelled, step.Stamps[0].Status.Message + ", record " + step.Stamps[0].ID}
	case step.Kind == decision.Wait && step.Why == decision.BudgetBlocked:
		return event{drainBlocked, "disruption budgets refuse evictions; the drain status of the record names the pods, session " + step.Session}
	case step.Kind == decision.Wait && step.Why == decision.NewerVersion:
		return event{newerVersion, "a fault of the node is for a newer version of node-drainer to drain for, see docs/upgrade.md; session " + step.Session}
	case step.Kind == decision.Wait && step.Why == decision.AwaitingCompletion:
		return event{awaitingCompletion, "pods may complete before the node is repaired, session " + step.Session}
	case step.Kind == decision.Wait && step.Why == decision.AwaitingDeadline:
		return event{awaitingDeadline, "pods may complete until they are deleted, session " + step.Session}
	}
	return event{}
}

func wasRunning(v decision.View, step decision.Step) bool {
	for _, s := range step.Stamps {
		for _, r := range v.Records {
			if r.ID == s.ID && r.Status.UserPodsEvictionStatus.Status == record.EvictionInProgress {
				return true
			}
		}
	}
	return false
}
