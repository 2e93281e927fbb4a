package drain

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/node-drainer/plan"
)

// Events on the Node: their type, and their reasons.
const (
	eventType      = "NodeDraining"
	eventComponent = "nvsentinel-node-drainer"

	drainStarted   = "DrainStarted"
	drainSucceeded = "DrainSucceeded"
	drainCancelled = "DrainCancelled"
	drainBlocked   = "DrainBlocked"
	// The two reasons that the predecessor's users know.
	awaitingCompletion = "AwaitingPodCompletion"
	awaitingDeadline   = "WaitingBeforeForceDelete"
)

// tell makes a step visible: log, metrics and an Event on the Node.
func (d *Drain) tell(ctx context.Context, node string, n *notes, sc scene, step plan.Step) {
	d.metrics.stepped(step)
	if len(step.Stamps) > 0 || len(step.Pods) > 0 {
		d.log.Info("drain step", "node", node, "session", step.Session, "step", string(step.Kind),
			"reason", string(step.Why), "pods", len(step.Pods), "left", step.Left, "records", len(step.Stamps))
	}
	if step.Kind == plan.Finish && step.Why == plan.PodsGone {
		d.metrics.drained(sc.view.Records, step, d.clock.Now())
	}
	e := announcement(sc.view, step)
	if e.reason == "" || sc.node == nil {
		return
	}
	if err := d.announce(ctx, sc.node, n, e); err != nil {
		d.metrics.errored("event")
		d.log.Warn("an event was not written", "node", node, "reason", e.reason, "error", err)
	}
}

// event is what an Event says; its message changes with the session alone, so
// that the same news raises a count.
type event struct{ reason, message string }

// announcement is the Event of a step; empty if it is not worth one, as the end
// of a drain that had nothing to move.
func announcement(v plan.View, step plan.Step) event {
	switch {
	case step.Kind == plan.Start:
		return event{drainStarted, "pods have to leave the node, session " + step.Session}
	case step.Kind == plan.Finish && step.Why == plan.PodsGone && wasRunning(v, step):
		return event{drainSucceeded, "no pod that had to leave the node is left, session " + step.Session}
	case step.Kind == plan.Cancel && wasRunning(v, step):
		return event{drainCancelled, step.Stamps[0].Status.Message + ", record " + step.Stamps[0].ID}
	case step.Kind == plan.Wait && step.Why == plan.BudgetBlocked:
		return event{drainBlocked, "disruption budgets refuse evictions; the drain status of the record names the pods, session " + step.Session}
	case step.Kind == plan.Wait && step.Why == plan.AwaitingCompletion:
		return event{awaitingCompletion, "pods may complete before the node is repaired, session " + step.Session}
	case step.Kind == plan.Wait && step.Why == plan.AwaitingDeadline:
		return event{awaitingDeadline, "pods may complete until they are deleted, session " + step.Session}
	}
	return event{}
}

func wasRunning(v plan.View, step plan.Step) bool {
	for _, s := range step.Stamps {
		for _, r := range v.Records {
			if r.ID == s.ID && r.Status.UserPodsEvictionStatus.Status == record.EvictionInProgress {
				return true
			}
		}
	}
	return false
}

// announce writes an Event about the Node, once in this process.
func (d *Drain) announce(ctx context.Context, node *corev1.Node, n *notes, e event) error {
	if n.announced[e] {
		return nil
	}
	err := kube.RecordNodeEvent(ctx, d.client, node, kube.NodeEvent{
		Component: eventComponent, Type: eventType, Reason: e.reason, Message: e.message,
	}, d.clock.Now())
	if err == nil {
		n.announced[e] = true
	}
	return err
}
