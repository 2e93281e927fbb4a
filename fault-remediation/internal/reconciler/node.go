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
	// EventLemon: the machine needed several remediations within the window of `[repeatOffender]`, so its Node has
	// the repeat offender label. Action: have the machine inspected, then remove the label or run `nvsentinel release
	// <node>`.
	EventLemon = "RepeatOffender"
)

// mark writes the state label and the view of the newest objects and of what a
// person is asked for, and the lemon mark, in one patch that holds only while
// the Node shows the session. Without a session or a label to set only the lemon mark
// is written. Whoever is to be asked is told by an Event first, so that a crash
// between the two tells it again and does not forget it.
func (r *Reconciler) mark(ctx context.Context, f *facts, step decision.Step) error {
	staged := f.view.Node.Session != "" && step.Label != ""
	if f.node == nil || !staged && step.Lemon == nil {
		return nil
	}
	view := ""
	if staged {
		view = decision.Annotation(f.view.Records, f.view.Node.Session, step.Create)
		r.call(ctx, f, view)
	}
	if m := step.Lemon; m != nil && m.Label && !f.view.Node.Lemon.Label {
		r.tell(ctx, f.node, EventLemon, m.Message())
	}
	node, err := kube.PatchNode(ctx, r.Cluster.Clientset, f.node, func(n *corev1.Node) {
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
		r.tell(ctx, f.node, EventNeedsHuman, call.Reason+": "+call.Message+" (record "+call.Record+")")
		r.Metrics.calledHuman(call.Reason)
	}
}

// announce tells of the faults of which a step says first that they ask for no repair.
func (r *Reconciler) announce(ctx context.Context, f *facts, step decision.Step) {
	for _, w := range decision.Unrepaired(step, f.view.Records) {
		r.tell(ctx, f.node, EventNoRepair, w.Status.Remediation.Waiting.Message+" (record "+w.ID+")")
	}
}

// tell writes a warning about the Node before what it tells of is done.
func (r *Reconciler) tell(ctx context.Context, node *corev1.Node, reason, message string) {
	r.Events.Write(ctx, eventrecorder.Node(node.Name), corev1.EventTypeWarning, reason, message)
}

// escalated tells of what is done already: besides the work.
func (r *Reconciler) escalated(f *facts, message string) {
	if f.node != nil {
		r.Events.Event(eventrecorder.Node(f.node.Name), corev1.EventTypeWarning, EventEscalated, message)
	}
}
