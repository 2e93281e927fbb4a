package repair

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nvidia/nvsentinel/fault-remediation/plan"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/outcome"
)

// Reasons of our Events about Nodes.
const (
	// EventNeedsHuman tells that a repair ended with a person.
	EventNeedsHuman = "RepairNeedsHuman"
	// EventEscalated tells that the next action is taken.
	EventEscalated = "RepairEscalated"
	// EventLemon tells that a Node is marked as a lemon.
	EventLemon = "NodeIsALemon"
)

// component names us in Events.
const component = "fault-remediation"

// mark writes the state label and the view of the newest objects and of what a
// person is asked for, and the lemon mark, in one patch under the resourceVersion
// that showed the session. Without a session or a label to set only the lemon mark
// is written. Whoever is to be asked is told by an Event first, so that a crash
// between the two tells it again and never forgets it.
func (d *Desk) mark(ctx context.Context, f *facts, step plan.Step) error {
	staged := f.view.Node.Session != "" && step.Label != ""
	if f.node == nil || !staged && step.Lemon == nil {
		return nil
	}
	view := ""
	if staged {
		view = plan.Annotation(f.view.Records, f.view.Node.Session, step.Create)
		if err := d.call(ctx, f, view); err != nil {
			return err
		}
	}
	if m := step.Lemon; m != nil && m.Label && !f.view.Node.Lemon.Label {
		if err := d.tell(ctx, f, EventLemon, m.Message()); err != nil {
			return err
		}
	}
	node, err := kube.PatchNode(ctx, d.Cluster.Clientset, f.node, func(n *corev1.Node) {
		if staged {
			nodemark.SetState(n, step.Label)
			nodemark.Annotate(n, nodemark.LatestFaultRemediationState, view)
		}
		if step.Lemon != nil {
			nodemark.SetLemon(n, nodemark.LemonMark(*step.Lemon))
		}
	})
	switch {
	case errors.Is(err, kube.ErrGone):
		return nil
	case errors.Is(err, kube.ErrConflict):
		return outcome.Race(err.Error())
	}
	if err == nil {
		f.node, f.view.Node = node, nodeFacts(node)
	}
	return err
}

// call asks a person for what the Node does not show yet.
func (d *Desk) call(ctx context.Context, f *facts, view string) error {
	for _, call := range plan.NewCalls(nodemark.Read(f.node).Repairs, view) {
		if err := d.tell(ctx, f, EventNeedsHuman, call.Reason+": "+call.Message+" (record "+call.Record+")"); err != nil {
			return err
		}
		d.Metrics.calledHuman(call.Reason)
	}
	return nil
}

// tell records a warning about the Node. An API server that refuses Events does
// not hold up what they tell about.
func (d *Desk) tell(ctx context.Context, f *facts, reason, message string) error {
	if f.node == nil {
		return nil
	}
	err := kube.RecordNodeEvent(ctx, d.Cluster.Clientset, f.node, kube.NodeEvent{
		Component: component, Type: corev1.EventTypeWarning, Reason: reason, Message: message,
	}, d.Clock.Now())
	if err == nil {
		return nil
	}
	d.Metrics.failed("event")
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		d.Log.Warn("event was refused", "node", f.view.Node.Name, "reason", reason, "message", message, "error", err)
		return nil
	}
	return err
}
