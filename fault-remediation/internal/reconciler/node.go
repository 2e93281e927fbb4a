package reconciler

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/retry"
)

// Reasons of our Events about Nodes.
const (
	// EventNeedsHuman: the remediation of a fault requires manual intervention, for the reason that the Event names.
	// Action: run `nvsentinel why <node>`, repair the machine, then run `nvsentinel release <node>`.
	EventNeedsHuman = "ManualInterventionRequired"
	// EventEscalated: the remediation failed and the next stronger action starts. Action: none.
	EventEscalated = "RepairEscalated"
	// EventNoRepair: the fault recommends no remediation, so the node stays quarantined until its recovery. Action:
	// resolve the cause, or run `nvsentinel clear <node> <record>`.
	EventNoRepair = "NoRepair"
	// EventRepeatOffender: the machine needed several remediations within the window of `[repeatOffender]`, so its Node has
	// the repeat offender label. Action: have the machine inspected, then remove the label or run `nvsentinel release
	// <node>`.
	EventRepeatOffender = "RepeatOffender"
)

// mark writes the state label, the view of the newest objects and of what a person is asked for,
// and the repeat offender mark, in one patch that holds only while the Node shows the session.
// Without a session or a label to set, only the repeat offender mark is written. The Event that
// asks a person comes first: a crash between the two repeats it and does not lose it.
func (r *Reconciler) mark(ctx context.Context, f *facts, step decision.Step) error {
	staged := f.view.Node.Session != "" && step.Label != ""
	if f.node == nil || !staged && step.RepeatOffender == nil {
		return nil
	}
	view := ""
	if staged {
		view = decision.Annotation(f.view.Records, f.view.Node.Session, step.Create)
		r.call(ctx, f, view)
	}
	if m := step.RepeatOffender; m != nil && m.Label && !f.view.Node.RepeatOffender.Label {
		r.warn(ctx, f.node, EventRepeatOffender, m.Message())
	}
	node, err := kube.PatchNode(ctx, r.Cluster.Clientset, f.node, func(n *corev1.Node) {
		if staged {
			nodemark.SetState(n, step.Label)
			nodemark.Annotate(n, nodemark.LatestFaultRemediationState, view)
		}
		if step.RepeatOffender != nil {
			nodemark.SetRepeatOffender(n, nodemark.RepeatOffenderMark(*step.RepeatOffender))
		}
	})
	switch {
	case errors.Is(err, kube.ErrNodeDeleted):
		return nil
	case errors.Is(err, kube.ErrConflict):
		return retry.Race(err.Error())
	}
	if err == nil {
		seen := f.view.Node.Kubelet
		f.node, f.view.Node = node, nodeFacts(node)
		f.view.Node.Kubelet = seen
	}
	return err
}

// call asks a person for what the Node does not show yet.
func (r *Reconciler) call(ctx context.Context, f *facts, view string) {
	for _, call := range decision.NewCalls(nodemark.Read(f.node).Repairs, view) {
		r.warn(ctx, f.node, EventNeedsHuman, call.Reason+": "+call.Message+" (record "+call.Record+")")
		r.Metrics.calledHuman(call.Reason)
	}
}

// announce warns of each fault of which the step first records that it asks for no repair.
func (r *Reconciler) announce(ctx context.Context, f *facts, step decision.Step) {
	for _, w := range decision.Unrepaired(step, f.view.Records) {
		r.warn(ctx, f.node, EventNoRepair, w.Status.Remediation.Waiting.Message+" (record "+w.ID+")")
	}
}

// warn writes a warning about the Node, before the change that it is about.
func (r *Reconciler) warn(ctx context.Context, node *corev1.Node, reason, message string) {
	r.Events.Write(ctx, eventrecorder.Node(node.Name), corev1.EventTypeWarning, reason, message)
}

// escalated warns of what is done already, without holding up the work.
func (r *Reconciler) escalated(f *facts, message string) {
	if f.node != nil {
		r.Events.Event(eventrecorder.Node(f.node.Name), corev1.EventTypeWarning, EventEscalated, message)
	}
}
