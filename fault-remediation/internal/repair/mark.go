package repair

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nvidia/nvsentinel/fault-remediation/plan"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// Reasons of our Events about Nodes.
const (
	// EventNeedsHuman tells that a repair ended with a person.
	EventNeedsHuman = "RepairNeedsHuman"
	// EventEscalated tells that the next action is taken.
	EventEscalated = "RepairEscalated"
)

// component names us in Events.
const component = "fault-remediation"

// mark writes the state label and the view of the newest objects and of what a
// person is asked for, in one patch under the resourceVersion that showed the
// session. Without a session or a label to set nothing is written. Whoever is
// to be asked is told by an Event first, so that a crash between the two tells
// it again and never forgets it.
func (d *Desk) mark(ctx context.Context, f *facts, step plan.Step) error {
	session, label := f.view.Node.Session, step.Label
	if f.node == nil || session == "" || label == "" {
		return nil
	}
	view := plan.Annotation(f.view.Records, session, step.Create)
	for _, call := range plan.NewCalls(f.node.Annotations[nodemark.LatestFaultRemediationState], view) {
		if err := d.tell(ctx, f, EventNeedsHuman, call.Reason+": "+call.Message+" (record "+call.Record+")"); err != nil {
			return err
		}
		d.Metrics.calledHuman(call.Reason)
	}
	_, err := kube.PatchNode(ctx, d.Cluster.Clientset, f.node, func(n *corev1.Node) {
		set(&n.Labels, nodemark.StateLabel, string(label))
		if view == "" {
			delete(n.Annotations, nodemark.LatestFaultRemediationState)
			return
		}
		set(&n.Annotations, nodemark.LatestFaultRemediationState, view)
	})
	if errors.Is(err, kube.ErrGone) {
		return nil
	}
	return err
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

func set(m *map[string]string, key, value string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = value
}
