// Package gpureset carries out GPUReset objects: it reads the object, its Node, the
// GPU services' pods and the Job, asks janitor/reset what is next, does that one
// thing, and looks again, until it has to wait for the world.
//
// Every write is guarded by what was read in the same pass, of the Node by the facts
// that kube.PatchNode tests, of the object by its resourceVersion; and the Job has the object's name: so nothing is done twice, whenever the process dies.
package gpureset

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
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
	"github.com/nvidia/nvsentinel/janitor/internal/reconciler"
	"github.com/nvidia/nvsentinel/janitor/repair"
	"github.com/nvidia/nvsentinel/janitor/reset"
)

// steps bounds a pass; the longest way has ten.
const steps = 12

// Deps are what the controller works with.
type Deps struct {
	// Objects reads and writes GPUResets at the API server, without a cache.
	Objects client.Client
	// Cluster reads Nodes, pods and Jobs in the same way.
	Cluster kubernetes.Interface
	// Brake is the emergency brake; nil is never on.
	Brake *brake.Brake
	// Excluded are the nodes that are left alone besides those that are opted out by
	// their label.
	Excluded []labels.Selector
	// Events writes what people should see; nil writes nothing.
	Events  *eventrecorder.Recorder
	Clock   clock.PassiveClock
	Log     *slog.Logger
	Metrics *Metrics
	// Services are the GPU services of a node, Tool what the Job runs.
	Services Services
	Tool     Tool
}

// Reconciler reconciles GPUResets.
type Reconciler struct {
	Deps
	policy reset.Policy
	// here marks the places where a test may end the process.
	here func(point string)
}

// New makes the controller.
func New(p reset.Policy, d Deps) *Reconciler {
	return &Reconciler{Deps: d, policy: p, here: crashpoint.Here}
}

// Reconcile takes an object as far as it gets now.
func (c *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	again, err := c.handle(ctx, req.Name)
	if errors.Is(err, kube.ErrConflict) {
		c.Log.Debug("looking again", "object", req.Name, "why", err)
		return ctrl.Result{RequeueAfter: reconciler.RaceWait}, nil
	}
	return ctrl.Result{RequeueAfter: again}, err
}

// pass is one look at one object and what it depends on.
type pass struct {
	object *v1alpha1.GPUReset
	node   *corev1.Node // nil is certain absence
	pods   []corev1.Pod // of the GPU services, on the node
	job    *batchv1.Job // nil is certain absence, or that there can be none
	log    *slog.Logger
}

// handle observes, decides and acts until it has to wait.
func (c *Reconciler) handle(ctx context.Context, name string) (time.Duration, error) {
	for range steps {
		p, err := c.observe(ctx, name)
		if err != nil || p == nil {
			return 0, err
		}
		v := reset.Next(c.view(p), c.policy, c.Clock.Now())
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

// observe reads what a decision depends on; nil when there is no object.
func (c *Reconciler) observe(ctx context.Context, name string) (*pass, error) {
	p := &pass{object: &v1alpha1.GPUReset{}}
	if err := c.Objects.Get(ctx, client.ObjectKey{Name: name}, p.object); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	p.log = c.Log.With("kind", Kind, "object", name, "node", p.object.Spec.NodeName)
	node, err := kube.ReadNode(ctx, c.Cluster, p.object.Spec.NodeName)
	if err != nil && !errors.Is(err, kube.ErrGone) {
		return nil, err
	}
	p.node = node
	if p.object.Status.CompletionTime != nil {
		return p, nil
	}
	if p.node != nil {
		if p.pods, err = c.Services.pods(ctx, c.Cluster, p.node.Name); err != nil {
			return nil, err
		}
	}
	p.job, err = c.readJob(ctx, p.object)
	return p, err
}

// view is what Next sees.
func (c *Reconciler) view(p *pass) reset.View {
	v := reset.View{Object: objectFacts(p.object), Job: jobFacts(p.object, p.job), Node: reset.Node{Node: reconciler.NodeFacts(p.node)}}
	if p.node != nil {
		v.Node.Excluded = v.Node.Excluded || slices.ContainsFunc(c.Excluded, func(s labels.Selector) bool {
			return s.Matches(labels.Set(p.node.Labels))
		})
		v.Node.Down = downOf(p.node)
		v.Node.Services = c.Services.facts(p.node, p.pods)
	}
	return v
}

// braked are the steps that touch the node.
var braked = []repair.Step{reset.Note, reset.TearDown, reset.NoteJob, reset.CreateJob}

// act carries out one step; goOn asks for the next decision.
func (c *Reconciler) act(ctx context.Context, p *pass, v repair.Verdict) (again time.Duration, goOn bool, err error) {
	if why, on := c.Brake.On(); on && slices.Contains(braked, v.Step) {
		p.log.Info("waiting", "why", why)
		return c.Brake.Wait(), false, nil
	}
	do, known := map[repair.Step]func(context.Context, *pass, repair.Verdict) error{
		repair.Begin: c.begin, repair.Claim: c.claim, reset.Note: c.note, reset.TearDown: c.tearDown,
		reset.NoteJob: c.noteJob, reset.CreateJob: c.createJob, reset.SeeJob: c.seeJob,
		reset.Conclude: c.conclude, reset.Restore: c.restore, reset.Complete: c.complete,
	}[v.Step]
	if known {
		return 0, true, do(ctx, p, v)
	}
	switch v.Step { //nolint:exhaustive // the others are above
	case repair.Wait:
		return v.Again, false, c.wait(ctx, p, v)
	case repair.Unclaim:
		return 0, true, c.unclaim(ctx, p, v)
	case repair.Expire:
		return 0, false, c.expire(ctx, p)
	}
	return 0, false, nil
}

// write stores the object's status under the resourceVersion it was read with.
func (c *Reconciler) write(ctx context.Context, object *v1alpha1.GPUReset) error {
	return reconciler.LostRace(c.Objects.Status().Update(ctx, object), "writing the status")
}
