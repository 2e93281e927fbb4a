package reconciler

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/janitor/internal/provider"
	"github.com/nvidia/nvsentinel/janitor/repair"
)

// Reasons of the Events about a maintenance object and its Node.
const (
	// rebootReason: the janitor is about to request the reboot of the machine. Action: none.
	rebootReason = "RebootSignal"
	// terminateReason: the janitor is about to request the termination of the machine. Action: none.
	terminateReason = "TerminateSignal"
	// unavailableReason: the provider plugin did not answer or reported a temporary error, and is called again. Action:
	// check the plugin if the Event returns.
	unavailableReason = "PluginUnavailable"
	// refusedReason: the provider plugin refused the request permanently. Action: correct the cause that the Event names.
	refusedReason = "PluginRefused"
)

// Kind is what one kind of repair has of its own.
type Kind struct {
	// Name of the kind, for example RebootNode.
	Name string
	// action is the label action_type of the metrics, and the verb for people.
	action string
	// goal is the condition that is True after success, hoped its description in messages.
	goal, hoped string
	// awaits is what a signal that was taken is to change.
	awaits repair.Reason
	// announced is the reason of the Event before the signal.
	announced string
	// needsBoot: there is no intent before the Node has reported its boot id.
	needsBoot bool
	// forGood: the Node will not come back.
	forGood bool

	object func() v1alpha1.Repair
	list   func() client.ObjectList
	next   func(repair.View, repair.Policy, time.Time) repair.Verdict
	send   func(context.Context, Plugin, provider.Signal) (string, error)
	// succeed notes how the goal was reached; node is nil when it is gone.
	succeed func(v1alpha1.Repair, *corev1.Node, repair.Reason) (sent, goal metav1.Condition)
}

// RebootNode is the kind of reboots.
func RebootNode() Kind {
	return Kind{
		Name: "RebootNode", action: "reboot", announced: rebootReason, needsBoot: true,
		goal: v1alpha1.ConditionNodeReady, hoped: "was Ready with another boot ID", awaits: repair.BootUnchanged,
		object: func() v1alpha1.Repair { return &v1alpha1.RebootNode{} },
		list:   func() client.ObjectList { return &v1alpha1.RebootNodeList{} },
		next:   repair.Reboot,
		send: func(ctx context.Context, p Plugin, s provider.Signal) (string, error) {
			return p.Reboot(ctx, s)
		},
		succeed: rebooted,
	}
}

// TerminateNode is the kind of terminations.
func TerminateNode() Kind {
	return Kind{
		Name: "TerminateNode", action: "terminate", announced: terminateReason, forGood: true,
		goal: v1alpha1.ConditionNodeTerminated, hoped: "and its machine were removed", awaits: repair.MachineThere,
		object: func() v1alpha1.Repair { return &v1alpha1.TerminateNode{} },
		list:   func() client.ObjectList { return &v1alpha1.TerminateNodeList{} },
		next:   repair.Termination,
		send: func(ctx context.Context, p Plugin, s provider.Signal) (string, error) {
			return p.Terminate(ctx, s)
		},
		succeed: terminated,
	}
}

// rebooted is the success of a reboot. Without an answer of the plugin the boot id shows
// that the signal arrived; without a signal, that none was needed.
func rebooted(object v1alpha1.Repair, node *corev1.Node, _ repair.Reason) (sent, goal metav1.Condition) {
	boot, before := node.Status.NodeInfo.BootID, *object.BootID()
	if r, ok := object.(*v1alpha1.RebootNode); ok {
		r.Status.ObservedBootID = boot
	}
	sent = signal(metav1.ConditionTrue, v1alpha1.ReasonBootChanged, "no answer was received, but the boot ID changed")
	if object.Progress().Signals == 0 {
		sent = signal(metav1.ConditionUnknown, v1alpha1.ReasonNotNeeded, "the node was rebooted without a signal")
	}
	return sent, metav1.Condition{Reason: v1alpha1.ReasonSucceeded, Message: "boot " + before + " was replaced by " + boot}
}

// terminated is the success of a termination.
func terminated(object v1alpha1.Repair, _ *corev1.Node, why repair.Reason) (sent, goal metav1.Condition) {
	sent = signal(metav1.ConditionTrue, v1alpha1.ReasonMachineGone, "no answer was received, but the machine no longer exists")
	goal = metav1.Condition{Reason: v1alpha1.ReasonSucceeded, Message: "the machine of node " + v1alpha1.NodeOf(object) + " and the node no longer exist"}
	if why == repair.Replaced {
		goal.Reason, goal.Message = v1alpha1.ReasonReplaced, "another machine has the node name "+v1alpha1.NodeOf(object)
	}
	return sent, goal
}
