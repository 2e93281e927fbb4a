// Package reconciler carries out repair objects, RebootNodes and TerminateNodes: it
// reads object and Node, asks janitor/repair what is next, does that one thing,
// and goes on until it has to wait for the world. What a kind has of its own is
// its Kind.
//
// Every write is guarded by what was read in the same pass: the Node's by the facts
// that kube.PatchNode tests, the object's by the resourceVersion of its status update. The update
// that notes a signal right before it is sent therefore also proves that the
// object was still open and that nobody else has sent one.
package reconciler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/brake"
	"github.com/nvidia/nvsentinel/internal/crashpoint"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/janitor/internal/provider"
	"github.com/nvidia/nvsentinel/janitor/repair"
)

// RaceWait is how long a lost race waits before it looks again.
const RaceWait = 50 * time.Millisecond

// steps bounds a pass: Begin, Claim, Send, AskPlugin, DeleteNode, an end and
// Unclaim are the longest way.
const steps = 9

// Plugin is the provider's side of a repair.
type Plugin interface {
	// Reboot and Terminate send a signal; their errors are a *provider.Error.
	Reboot(ctx context.Context, s provider.Signal) (requestID string, err error)
	Terminate(ctx context.Context, s provider.Signal) (requestID string, err error)
	// State asks what the provider says of the machine.
	State(ctx context.Context, node, requestID string) (provider.State, error)
}

// Deps are what the controller works with.
type Deps struct {
	// Objects reads and writes repair objects at the API server, without a cache:
	// an old copy of an object that is over would claim its node again.
	Objects client.Client
	Nodes   kubernetes.Interface
	Plugin  Plugin
	// Brake is the emergency brake; nil is never on.
	Brake *brake.Brake
	// Excluded are the nodes that are left alone besides those that are opted
	// out by their label.
	Excluded []labels.Selector
	// Events writes what people should see; nil writes nothing.
	Events  *eventrecorder.Recorder
	Clock   clock.PassiveClock
	Log     *slog.Logger
	Metrics *Metrics
}

// Reconciler reconciles the objects of one kind.
type Reconciler struct {
	Deps
	kind   Kind
	policy repair.Policy
	// here marks the places where a test may end the process.
	here func(point string)
}

// New makes the controller of a kind.
func New(k Kind, p repair.Policy, d Deps) *Reconciler {
	return &Reconciler{Deps: d, kind: k, policy: p, here: crashpoint.Here}
}

// Reconcile takes an object as far as it gets now.
func (c *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	again, err := c.handle(ctx, req.Name)
	if errors.Is(err, kube.ErrConflict) {
		c.Log.Debug("looking again", "object", req.Name, "why", err)
		return ctrl.Result{RequeueAfter: RaceWait}, nil
	}
	return ctrl.Result{RequeueAfter: again}, err
}

// pass is one look at one object and its Node.
type pass struct {
	object v1alpha1.Repair
	node   *corev1.Node // nil is certain absence
	plugin repair.Plugin
	log    *slog.Logger
}

// handle observes, decides and acts until it has to wait.
func (c *Reconciler) handle(ctx context.Context, name string) (time.Duration, error) {
	p, err := c.observe(ctx, name)
	if err != nil || p == nil {
		return 0, err
	}
	c.here("janitor/observed")
	for range steps {
		v := c.kind.next(c.view(p), c.policy, c.Clock.Now())
		c.here("janitor/decided")
		again, goOn, err := c.act(ctx, p, v)
		if err != nil {
			return 0, fmt.Errorf("%s of %s: %w", v.Step, name, err)
		}
		if !goOn {
			return again, nil
		}
	}
	return 0, fmt.Errorf("object %s does not come to rest", name)
}

// observe reads the object and the Node; nil when there is no object.
func (c *Reconciler) observe(ctx context.Context, name string) (*pass, error) {
	p := &pass{object: c.kind.object()}
	if err := c.Objects.Get(ctx, client.ObjectKey{Name: name}, p.object); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	nodeName := v1alpha1.NodeOf(p.object)
	p.log = c.Log.With("kind", c.kind.Name, "object", name, "node", nodeName)
	if nodeName == "" {
		return p, nil
	}
	node, err := kube.ReadNode(ctx, c.Nodes, nodeName)
	if err != nil && !errors.Is(err, kube.ErrGone) {
		return nil, err
	}
	p.node = node
	return p, nil
}

// view is what Decide sees.
func (c *Reconciler) view(p *pass) repair.View {
	v := repair.View{Object: objectFacts(p.object), Node: NodeFacts(p.node), Plugin: p.plugin}
	if p.node != nil {
		v.Node.Excluded = v.Node.Excluded || slices.ContainsFunc(c.Excluded, func(s labels.Selector) bool {
			return s.Matches(labels.Set(p.node.Labels))
		})
	}
	return v
}

// act carries out one step; goOn asks for the next decision.
func (c *Reconciler) act(ctx context.Context, p *pass, v repair.Verdict) (again time.Duration, goOn bool, err error) {
	if why, on := c.Brake.On(); on && (v.Step == repair.Send || v.Step == repair.Resend || v.Step == repair.DeleteNode) {
		p.log.Info("waiting", "why", why)
		return c.Brake.Wait(), false, nil
	}
	switch v.Step {
	case repair.Begin:
		return 0, true, c.begin(ctx, p)
	case repair.Claim:
		return 0, true, c.claim(ctx, p)
	case repair.Send, repair.Resend:
		return 0, true, c.send(ctx, p)
	case repair.AskPlugin:
		c.ask(ctx, p)
		return 0, true, nil
	case repair.DeleteNode:
		return 0, true, c.deleteNode(ctx, p)
	case repair.Wait:
		return v.Again, false, c.wait(ctx, p, v)
	case repair.Succeed, repair.Fail, repair.SessionOver:
		return 0, true, c.end(ctx, p, v)
	case repair.Unclaim:
		return 0, true, c.unclaim(ctx, p, v)
	case repair.Expire:
		return 0, false, c.expire(ctx, p)
	case repair.Done:
	}
	return 0, false, nil
}

// write stores the object's status under the resourceVersion it was read with.
func (c *Reconciler) write(ctx context.Context, object v1alpha1.Repair) error {
	return LostRace(c.Objects.Status().Update(ctx, object), "writing the status")
}

// LostRace is the error of a write: kube.ErrConflict if the object is not the one that
// was read any more, or is gone.
func LostRace(err error, doing string) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		err = kube.ErrConflict
	}
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}
