// Package reconciler reconciles RebootNode and TerminateNode objects. Frame is what all kinds
// share, and Reconciler that of RebootNodes and TerminateNodes: it asks janitor/repair what is
// next. What each of the two kinds has of its own is its Kind.
//
// The update that notes a signal right before it is sent also proves that the object was
// still open and that nobody else has sent one.
package reconciler

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/janitor/internal/provider"
	"github.com/nvidia/nvsentinel/janitor/repair"
)

// steps bounds a pass: Begin, Claim, Send, QueryPlugin, DeleteNode, an end and
// Unclaim are the longest way.
const steps = 9

// Plugin is the provider's side of a repair.
type Plugin interface {
	// Reboot and Terminate send a signal; their errors are a *provider.Error.
	Reboot(ctx context.Context, s provider.Signal) (requestID string, err error)
	Terminate(ctx context.Context, s provider.Signal) (requestID string, err error)
	// State asks the provider for the state of the machine.
	State(ctx context.Context, node, requestID string) (provider.State, error)
}

// Reconciler reconciles the objects of one kind that a plugin repairs.
type Reconciler struct {
	Frame[v1alpha1.Repair, repair.Plugin]
	plugin Plugin
	kind   Kind
	policy repair.Policy
}

// pass is one look at one object and its Node.
type pass = Pass[v1alpha1.Repair, repair.Plugin]

// New makes the controller of a kind.
func New(k Kind, p repair.Policy, plugin Plugin, d Deps) *Reconciler {
	c := &Reconciler{kind: k, policy: p, plugin: plugin}
	c.Frame = NewFrame(d, Traits[v1alpha1.Repair, repair.Plugin]{
		Name: k.Name, Action: k.action, MaxSteps: steps, Object: k.object, List: k.list,
		NodeOf:    v1alpha1.NodeOf,
		Completed: func(object v1alpha1.Repair) bool { return object.Progress().CompletionTime != nil },
		Decide: func(p *pass, now time.Time) repair.Verdict {
			return k.next(repair.View{Object: objectFacts(p.Object), Node: c.NodeOfPass(p), Plugin: p.Facts}, c.policy, now)
		},
		Steps: map[repair.Step]func(context.Context, *pass, repair.Verdict) error{
			repair.Send: c.send, repair.Resend: c.send, repair.QueryPlugin: c.queryPlugin, repair.DeleteNode: c.deleteNode,
			repair.Succeed: c.end, repair.Fail: c.end, repair.SessionOver: c.end,
		},
		PausedSteps: []repair.Step{repair.Send, repair.Resend, repair.DeleteNode},
		Begin:       k.begin, Waiting: k.waiting, Changed: byOthers,
		NodeFacts: func(n *corev1.Node) any { return NodeFacts(n) },
	})
	return c
}

// byOthers reports whether an object's change is not the janitor's own. Of its status others
// only set that a signal was sent manually.
func byOthers(before, after v1alpha1.Repair) bool {
	was, is := objectFacts(before), objectFacts(after)
	return was.Session != is.Session || was.Abandoned != is.Abandoned ||
		was.Deleting != is.Deleting || was.Acknowledged != is.Acknowledged && is.Signals == 0
}
